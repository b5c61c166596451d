// What kernels leave for the host, as a launch is over before it is known: sums that --exact-sums
// cannot keep exact, and rows for which a rank of ep has no room.
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
  rows       ///< more rows of experts for one rank than it has room for
};

/// The first fault of a run. Device memory, or host memory that a device writes; zeroed once.
struct ExactOutlier {
  ExactFault fault = ExactFault::none;
  KernelKind kernel = {};
  float value = 0;
  float limit = 0;  ///< of `sum`: the largest magnitude; of `rows` how many there is room for
  std::int64_t exponent = 0;
};

/// The error that names the kernel and what was expected, if there is a fault. To be asked with a
/// copy once what was launched has run; results since the fault mean nothing.
[[nodiscard]] Result<void> check_exact(const ExactOutlier& outlier);

}  // namespace mfsdp::cuda
