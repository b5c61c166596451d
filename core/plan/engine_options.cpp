#include "core/plan/engine_options.hpp"

#include <charconv>
#include <system_error>

namespace mfsdp {
namespace {

constexpr std::string_view kBlocks = "blocks:";
constexpr std::string_view kEnds = "ends";

/// A positive number, written alone.
std::optional<std::int64_t> positive(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end || number < 1) return std::nullopt;
  return number;
}

}  // namespace

std::string flag_text(const FsdpUnits& units) {
  std::string text = "block";
  if (units.parts_of_blocks)
    text = "parts";
  else if (units.blocks == 0)
    text = "model";
  else if (units.blocks > 1)
    text = std::string(kBlocks) + std::to_string(units.blocks);
  return units.ends_apart ? text + "," + std::string(kEnds) : text;
}

std::string flag_text(const SelectiveAc& selective) {
  return selective.by_operator ? "op" : std::to_string(selective.every);
}

std::string flag_text(const EngineOptions& options) {
  const EngineOptions plain;
  std::string text;
  const auto add = [&](std::string_view flag, const std::string& value = {}) {
    if (!text.empty()) text += ' ';
    text += flag;
    if (!value.empty()) text += ' ' + value;
  };
  if (options.accumulate_unsharded) add("--accumulate-unsharded");
  if (options.reshard_root) add("--reshard-root");
  if (options.units != plain.units) add("--fsdp-unit", flag_text(options.units));
  if (options.selective_ac.is_given()) add("--selective-ac", flag_text(options.selective_ac));
  if (options.modules != plain.modules) add("--modules", std::string(to_string(options.modules)));
  if (options.bf16_loss) add("--bf16-loss");
  if (options.holds_logits) add("--hold-logits");
  return text;
}

std::optional<FsdpUnits> parse_fsdp_units(std::string_view text) {
  FsdpUnits units;
  const std::size_t comma = text.find(',');
  if (comma != std::string_view::npos) {
    if (text.substr(comma + 1) != kEnds) return std::nullopt;
    units.ends_apart = true;
    text = text.substr(0, comma);
  }
  if (text == "model" && !units.ends_apart) {
    units.blocks = 0;
  } else if (text == "parts") {
    units.parts_of_blocks = true;
  } else if (text.starts_with(kBlocks)) {
    const auto blocks = positive(text.substr(kBlocks.size()));
    if (!blocks) return std::nullopt;
    units.blocks = *blocks;
  } else if (text != "block") {
    return std::nullopt;
  }
  return units;
}

std::optional<SelectiveAc> parse_selective_ac(std::string_view text) {
  if (text == "op") return SelectiveAc{.by_operator = true, .every = 0};
  const auto every = positive(text);
  if (!every) return std::nullopt;
  return SelectiveAc{.by_operator = false, .every = *every};
}

}  // namespace mfsdp
