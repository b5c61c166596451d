#include "core/plan/engine_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cassert>
#include <charconv>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/amount.hpp"
#include "core/base/text.hpp"

namespace mfsdp {
namespace {

constexpr const char* kOptionFlag = "--engine-option";
constexpr std::string_view kBlocksWord = "blocks:";
constexpr std::string_view kEndsWord = "ends";

/// A positive number, written alone.
std::optional<std::int64_t> positive(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end || number < 1) return std::nullopt;
  return number;
}

/// As option_value_text() writes them.
std::optional<FsdpUnits> units_of(std::string_view text) {
  FsdpUnits units;
  const std::size_t comma = text.find(',');
  if (comma != std::string_view::npos) {
    if (text.substr(comma + 1) != kEndsWord) return std::nullopt;
    units.ends_apart = true;
    text = text.substr(0, comma);
  }
  if (text == "model" && !units.ends_apart) {
    units.blocks = 0;
  } else if (text == "parts") {
    units.parts_of_blocks = true;
  } else if (text.starts_with(kBlocksWord)) {
    const auto blocks = positive(text.substr(kBlocksWord.size()));
    if (!blocks) return std::nullopt;
    units.blocks = *blocks;
  } else if (text != "block") {
    return std::nullopt;
  }
  return units;
}

/// "op", or the n of every n-th block.
std::optional<SelectiveAc> selective_of(std::string_view text) {
  if (text == "op") return SelectiveAc{.by_operator = true, .every = 0};
  const auto every = positive(text);
  if (!every) return std::nullopt;
  return SelectiveAc{.by_operator = false, .every = *every};
}

/// The value of a text, and what else was expected.
struct OptionReading {
  std::optional<OptionValue> value;
  std::string expected;
};

template <class Value>
OptionReading reading_of(const std::optional<Value>& value, std::string expected) {
  OptionReading reading{.value = {}, .expected = std::move(expected)};
  if (value) reading.value = *value;
  return reading;
}

// The first parameter is the option's default.
OptionReading read_option(bool, const EngineOption& option, std::string_view text) {
  std::optional<bool> value;
  if (text == "true" || text == "false") value = text == "true";
  if (option.is_flag() && text.empty()) value = true;
  return reading_of(value, "true or false");
}

OptionReading read_option(std::int64_t, const EngineOption& option, std::string_view text) {
  OptionReading reading{
      .value = {},
      .expected = fmt::format("a whole number from {} to {}", option.least, kMostOfOption)};
  const std::int64_t number = parse_count(text).value_or(-1);
  if (number >= option.least && number <= kMostOfOption) reading.value = number;
  return reading;
}

OptionReading read_option(Modules, const EngineOption&, std::string_view text) {
  return reading_of(parse<Modules>(lower_case(text)), "one of " + name_list<Modules>());
}

OptionReading read_option(ContextComm, const EngineOption&, std::string_view text) {
  return reading_of(parse<ContextComm>(lower_case(text)), "one of " + name_list<ContextComm>());
}

OptionReading read_option(const FsdpUnits&, const EngineOption&, std::string_view text) {
  return reading_of(units_of(text),
                    "block, blocks:K, parts or model; the first three also with ,ends");
}

OptionReading read_option(const SelectiveAc&, const EngineOption&, std::string_view text) {
  return reading_of(selective_of(text), "op or the n of every n-th block");
}

std::string option_value_text(bool value) { return value ? "true" : "false"; }
std::string option_value_text(std::int64_t value) { return std::to_string(value); }
std::string option_value_text(ContextComm value) { return std::string(to_string(value)); }
std::string option_value_text(Modules value) { return std::string(to_string(value)); }
std::string option_value_text(const SelectiveAc& value) {
  if (value.by_operator) return "op";
  return value.every == 0 ? "none" : std::to_string(value.every);
}

/// "block", "model", "blocks:K", "parts"; each with ",ends" where the ends are apart.
std::string option_value_text(const FsdpUnits& units) {
  std::string text = "block";
  if (units.parts_of_blocks)
    text = "parts";
  else if (units.blocks == 0)
    text = "model";
  else if (units.blocks > 1)
    text = std::string(kBlocksWord) + std::to_string(units.blocks);
  return units.ends_apart ? text + "," + std::string(kEndsWord) : text;
}

/// "--fsdp-unit block", "--reshard-root", "no --reshard-root"; "no_sync false" with a blank as
/// `sign`.
std::string option_text(const EngineOption& option, const OptionValue& value, char sign) {
  const std::string text =
      std::visit([](const auto& each) { return option_value_text(each); }, value);
  if (!option.is_flag()) return fmt::format("{}{}{}", option.word, sign, text);
  if (text == "true") return std::string(option.word);
  if (text == "false" || text == "none") return fmt::format("no {}", option.word);
  return fmt::format("{} {}", option.word, text);
}

std::vector<const EngineOption*> options_of(EngineKind engine) {
  std::vector<const EngineOption*> options;
  for (const EngineOption& option : kEngineOptions)
    if (option.is_of(traits_of(engine))) options.push_back(&option);
  return options;
}

std::string engines_with(std::string_view word) {
  std::vector<std::string_view> engines;
  for (const EngineTraits& engine : kEngines)
    if (has_option(engine.kind, word)) engines.push_back(engine.name);
  return fmt::format("{}", fmt::join(engines, ", "));
}

std::string_view flag_of_use(OptionWith with) {
  switch (with) {
    case OptionWith::fp8: return "--fp8 tensorwise";
    case OptionWith::tp: return "--tp 2 or more";
    case OptionWith::cp: return "--cp 2 or more";
    default: return "nothing";
  }
}

}  // namespace

OptionUses option_uses(const PlanConfig& config) {
  return {.fp8 = config.has_fp8(),
          .tp = config.mesh.size(Axis::tp) > 1,
          .cp = config.mesh.size(Axis::cp) > 1,
          .pp = config.mesh.size(Axis::pp) > 1};
}

Result<void> EngineOptions::set(std::string_view word, std::string_view text) {
  // Rows of one word take the same values.
  const EngineOption* option = std::ranges::find(kEngineOptions, word, &EngineOption::word);
  assert(option != kEngineOptions.end());
  const OptionReading reading = std::visit(
      [&](const auto& usual) { return read_option(usual, *option, text); }, option->usual);
  if (!reading.value && option->is_flag())
    return fail(std::string(word),
                fmt::format("'{}' is not {}", printable(text), reading.expected));
  if (!reading.value)
    return fail(kOptionFlag,
                fmt::format("{} is {}, not '{}'", word, reading.expected, printable(text)));
  given_[option->word] = *reading.value;
  return {};
}

Result<void> EngineOptions::set(std::string_view assignment) {
  const std::size_t sign = assignment.find('=');
  if (sign == std::string_view::npos)
    return fail(kOptionFlag, fmt::format("'{}' is not NAME=VALUE such as overlap_comm=true",
                                         printable(assignment)));
  const std::string_view word = assignment.substr(0, sign);
  std::vector<std::string_view> words;
  for (const EngineOption& option : kEngineOptions)
    if (!option.is_flag() && (words.empty() || words.back() != option.word))
      words.push_back(option.word);
  if (std::ranges::find(words, word) == words.end())
    return fail(kOptionFlag,
                fmt::format("'{}' is not one of {}", printable(word), fmt::join(words, ", ")));
  return set(word, assignment.substr(sign + 1));
}

Result<void> EngineOptions::check(EngineKind engine) const {
  Reasons reasons;
  for (const auto& [word, value] : given_) {
    if (has_option(engine, word)) continue;
    const bool is_flag = word.starts_with("--");
    reasons.add(fail(is_flag ? std::string(word) : kOptionFlag,
                     fmt::format("--engine {} has no {}; engines with it: {}", to_string(engine),
                                 is_flag ? "such option" : word, engines_with(word))));
  }
  return reasons.verdict();
}

const OptionValue& EngineOptions::value(EngineKind engine, std::string_view word) const {
  if (const auto found = given_.find(word); found != given_.end()) return found->second;
  const EngineOption* option = option_of(engine, word);
  assert(option != nullptr);
  return option->usual;
}

std::string EngineOptions::changes(EngineKind engine) const {
  std::vector<std::string> changed;
  for (const EngineOption* option : options_of(engine))
    if (const OptionValue& now = value(engine, option->word); now != option->usual)
      changed.push_back(option_text(*option, now, '='));
  return fmt::format("{}", fmt::join(changed, " "));
}

Result<void> EngineOptions::check_uses(const OptionUses& uses) const {
  Reasons reasons;
  for (const auto& [word, value] : given_) {
    const OptionWith with = std::ranges::find(kEngineOptions, word, &EngineOption::word)->with;
    if (!uses.has(with))
      reasons.add(fail(kOptionFlag, fmt::format("{} needs {}", word, flag_of_use(with))));
  }
  return reasons.verdict();
}

std::string EngineOptions::statement(EngineKind engine, const OptionUses& uses) const {
  std::vector<std::string> given;
  std::vector<std::string> defaults;
  for (const EngineOption* option : options_of(engine)) {
    const bool is_given = given_.contains(option->word);
    const bool is_stated =
        uses.has(option->with) && (is_given || option->with != OptionWith::anything_if_given);
    if (is_stated)
      (is_given ? given : defaults)
          .push_back(option_text(*option, value(engine, option->word), ' '));
  }
  if (given.empty() && defaults.empty()) return "";
  if (!defaults.empty()) given.push_back(fmt::format("by default {}", fmt::join(defaults, ", ")));
  return fmt::format("options of {}: {}", to_string(engine), fmt::join(given, ", "));
}

}  // namespace mfsdp
