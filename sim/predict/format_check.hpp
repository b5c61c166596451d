// Checks that a GPU multiplies the numbers of a configuration.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/config.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// An error names --fp8 where the GPU's file does not list the format of its GEMMs
/// (compute.matmul_formats).
[[nodiscard]] Result<void> check_formats(const PlanConfig& config, const Gpu& gpu);

}  // namespace mfsdp
