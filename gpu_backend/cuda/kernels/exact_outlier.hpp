// Errors that kernels report to the host after their launch has returned: sums that --exact-sums
// cannot keep exact, and rows beyond the capacity of a rank of ep.
#pragma once

#include <cstdint>

#include "core/base/error.hpp"
#include "core/plan/op.hpp"

namespace mfsdp::cuda {

enum class ExactFault : std::int32_t {
  none,
  sum,       ///< a piece, or a sum of pieces, is larger than its limit or not a number
  gradient,  ///< a gradient is no multiple of a step within 24 bits
  squares,   ///< a sum of squares leaves 63 bits
  rows       ///< rows of experts for one rank exceed its capacity
};

/// The first fault of a run. In device memory, or in host memory that a device writes; zeroed once.
struct ExactOutlier {
  ExactFault fault = ExactFault::none;
  KernelKind kernel = {};
  float value = 0;
  float limit = 0;  ///< for `sum`: the largest magnitude; for `rows` the capacity
  std::int64_t exponent = 0;
};

/// The error with the kernel and the expectation, if there is a fault. Call with a copy, after the
/// launched kernels have run. Results after the fault have no meaning.
[[nodiscard]] Result<void> check_exact(const ExactOutlier& outlier);

}  // namespace mfsdp::cuda
