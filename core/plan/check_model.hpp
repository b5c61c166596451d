// Checks a program against the model of its configuration.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Checks that units and parameters are those of the configured model, and that segments have the
/// configured microbatches. Requires that ids resolve; throws OverflowError.
[[nodiscard]] Result<void> check_model(const Program& program);

}  // namespace mfsdp
