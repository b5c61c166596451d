// Inputs of kernels beside their call.
#pragma once

#include <cstdint>

#include "core/plan/plan.hpp"
#include "core/runtime/step_block.hpp"

namespace mfsdp {

/// Settings that all kernels of a run share and that no operand or attribute holds.
struct KernelSettings {
  /// The program whose kernels run: its groups and mesh determine which elements of a shard decay.
  /// Never null if a kernel updates weights.
  const Program* program = nullptr;
  OptimizerSettings optimizer = {};
  std::int32_t ignore_index = -100;  ///< label of a token without loss
};

}  // namespace mfsdp
