// FP8 in a configuration.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

/// Data sheets of all GPUs with FP8 state twice the dense rate of bf16.
inline constexpr double kFp8Speed = 2;

/// Whether the linear layers of blocks can multiply in FP8 as the configuration asks; the error
/// names the flag.
[[nodiscard]] Result<void> check_fp8(const PlanConfig& config);

}  // namespace mfsdp
