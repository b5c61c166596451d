// FP8 in a configuration.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

/// Whether the linear layers of blocks can multiply in FP8 as the configuration asks; the error
/// names the flag.
[[nodiscard]] Result<void> check_fp8(const PlanConfig& config);

}  // namespace mfsdp
