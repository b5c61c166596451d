// One kernel against the model and the settings of a run: values of its attributes, and its
// optional operands.
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

/// Values of the named dimensions and attributes of one kernel.
using NamedSizes = std::vector<std::pair<std::string_view, std::int64_t>>;

[[nodiscard]] std::optional<std::int64_t> size_named(const NamedSizes& sizes,
                                                     std::string_view name);

/// A message where a kernel that fits its spec differs from the configuration; else nothing.
[[nodiscard]] std::optional<std::string> settings_fault(const Kernel& kernel,
                                                        const PlanConfig& config,
                                                        const NamedSizes& sizes);

}  // namespace mfsdp
