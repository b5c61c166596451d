// Whether a program is one of the model that its configuration has.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Checks that groups hold the configured model's units and parameters, each as the model has it,
/// and segments the configured microbatches. Requires that ids resolve; throws OverflowError.
[[nodiscard]] Result<void> check_model(const Program& program);

}  // namespace mfsdp
