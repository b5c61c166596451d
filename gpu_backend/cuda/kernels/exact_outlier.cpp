#include "gpu_backend/cuda/kernels/exact_outlier.hpp"

#include <fmt/format.h>

namespace mfsdp::cuda {

Result<void> check_exact(const ExactOutlier& outlier) {
  const std::string where = fmt::format("kernel {}", to_string(outlier.kernel));
  switch (outlier.fault) {
    case ExactFault::none: break;
    case ExactFault::sum:
      return fail(where,
                  fmt::format("--exact-sums expects sums of at most {} in magnitude, so that none "
                              "over all ranks leaves 24 bits above 2^{}; got {}",
                              outlier.limit, outlier.exponent, outlier.value));
    case ExactFault::gradient:
      return fail(where,
                  fmt::format("--exact-sums expects multiples of 2^{} within 24 bits, got {}",
                              outlier.exponent, outlier.value));
    case ExactFault::squares:
      return fail(where, "--exact-sums expects sums of squares that keep to 63 bits");
    case ExactFault::rows:
      return fail("--capacity-factor",
                  fmt::format("expected room for {} rows from one rank of ep to another, got {}",
                              outlier.value, outlier.limit));
  }
  return {};
}

}  // namespace mfsdp::cuda
