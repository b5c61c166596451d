// What the model and the settings of a run say of a kernel: its attributes, and which of its
// optional operands it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/config.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

/// What names of dims and attributes of one kernel stand for.
using NamedSizes = std::vector<std::pair<std::string_view, std::int64_t>>;

[[nodiscard]] std::optional<std::int64_t> size_named(const NamedSizes& sizes,
                                                     std::string_view name);

/// What of a kernel that fits its form is not as configured, or nothing.
[[nodiscard]] std::optional<std::string> settings_fault(const Kernel& kernel,
                                                        const PlanConfig& config,
                                                        const NamedSizes& sizes);

}  // namespace mfsdp
