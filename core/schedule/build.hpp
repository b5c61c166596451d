// From a configuration to a complete program: the one entry of the planner.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Builds the train and eval plans with buffers placed in pools. Errors name the flag at fault or
/// say which size left 63 bits.
[[nodiscard]] Result<Program> build_program(const PlanConfig& config, const Meta& meta);

}  // namespace mfsdp
