// Checks that the rules of --cp and --tp share; errors name `flag`.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

[[nodiscard]] tl::unexpected<Error> cannot_combine(std::string_view flag, std::string_view what);

/// Whether the number of ranks divides each size.
[[nodiscard]] Result<void> check_equal_shares(
    std::string_view flag, std::int64_t ranks,
    std::initializer_list<std::pair<std::string_view, std::int64_t>> sizes);

/// Whether no transport needs registered memory.
[[nodiscard]] Result<void> check_without_windows(std::string_view flag, const PlanConfig& config);

}  // namespace mfsdp
