#include "core/plan/config_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

namespace mfsdp {
namespace {

/// A whole number of at least 1, or nothing.
std::optional<std::int64_t> parse_blocks(std::string_view text) {
  std::int64_t blocks = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, blocks);
  const bool whole = read.ec == std::errc() && read.ptr == end;
  return whole && blocks >= 1 ? std::optional(blocks) : std::nullopt;
}

}  // namespace

std::string flag_text(std::int64_t value) { return fmt::format("{}", value); }

std::string flag_text(bool value) { return value ? "true" : "false"; }

std::string flag_text(const Rational& value) {
  if (value.den == 1) return flag_text(value.num);
  if (const auto decimal = exact_double(value)) return fmt::format("{}", *decimal);
  return fmt::format("{}/{}", value.num, value.den);
}

std::string flag_text(const std::vector<std::string>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

std::string flag_text(const std::vector<std::int64_t>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

std::string flag_text(const RecomputePolicy& policy) {
  if (policy.full_blocks == 0) return flag_text(policy.kind);
  return fmt::format("{}:{}", to_string(policy.kind), policy.full_blocks);
}

std::string flag_text(const std::optional<Strategy>& strategy) {
  return strategy ? std::string(to_string(*strategy)) : "";
}

std::string flag_text(const Mesh& mesh) { return flag_text(mesh.size(Axis::dp_outer)); }

std::optional<RecomputePolicy> parse_recompute(std::string_view text) {
  constexpr std::string_view partly = "full:";
  if (text.starts_with(partly)) {
    const auto blocks = parse_blocks(text.substr(partly.size()));
    if (!blocks) return std::nullopt;
    return RecomputePolicy{.kind = Recompute::full, .full_blocks = *blocks};
  }
  const auto kind = parse<Recompute>(text);
  if (!kind) return std::nullopt;
  return RecomputePolicy{.kind = *kind};
}

}  // namespace mfsdp
