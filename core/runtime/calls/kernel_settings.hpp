// What kernels need beside their call.
#pragma once

#include <cstdint>

#include "core/plan/plan.hpp"
#include "core/runtime/step_block.hpp"

namespace mfsdp {

/// What is the same for all kernels of a run and stands in no operand or attribute.
struct KernelSettings {
  /// The program whose kernels are run: epsilon and heads of the model, the clip limit, and which
  /// elements of a slice decay. Never null.
  const Program* program = nullptr;
  OptimizerSettings optimizer = {};
  std::int32_t ignore_index = -100;  ///< label of a token without loss
};

}  // namespace mfsdp
