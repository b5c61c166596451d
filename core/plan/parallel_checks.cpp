#include "core/plan/parallel_checks.hpp"

#include <fmt/format.h>

#include <string>

#include "core/plan/transport.hpp"

namespace mfsdp {

tl::unexpected<Error> cannot_combine(std::string_view flag, std::string_view what) {
  return fail(std::string(flag), fmt::format("cannot be combined with {} so far", what));
}

Result<void> check_equal_shares(
    std::string_view flag, std::int64_t ranks,
    std::initializer_list<std::pair<std::string_view, std::int64_t>> sizes) {
  for (const auto& [what, size] : sizes)
    if (size % ranks != 0)
      return fail(std::string(flag),
                  fmt::format("expected a number of ranks that divides the {} {}, got {}", size,
                              what, ranks));
  return {};
}

Result<void> check_without_windows(std::string_view flag, const PlanConfig& config) {
  for (const auto& [stated, transport] :
       {std::pair{"--gather", config.gather}, std::pair{"--reduce", config.reduce}})
    if (traits_of(transport).uses_windows)
      return cannot_combine(flag, fmt::format("{} {}", stated, to_string(transport)));
  return {};
}

}  // namespace mfsdp
