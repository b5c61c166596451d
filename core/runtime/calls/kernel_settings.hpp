// What kernels need beside their call.
#pragma once

#include <cstdint>

#include "core/plan/plan.hpp"
#include "core/runtime/step_block.hpp"

namespace mfsdp {

/// What is the same for all kernels of a run and stands in no operand or attribute.
struct KernelSettings {
  /// The program whose kernels are run: its groups and mesh tell which elements of a slice decay.
  /// Never null where a kernel updates weights.
  const Program* program = nullptr;
  OptimizerSettings optimizer = {};
  std::int32_t ignore_index = -100;  ///< label of a token without loss
};

}  // namespace mfsdp
