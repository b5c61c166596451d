// Device code of --exact-sums (core/plan/exact_sums.hpp): pieces are rounded to multiples of
// 2^exponent before they are added.
#pragma once

#include <cmath>
#include <limits>

#include "core/plan/kernels/pieces.hpp"
#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/exact_sums.hpp"

namespace mfsdp::cuda {

/// Stores the first fault of a run.
__device__ inline void report(ExactOutlier* to, const ExactOutlier& outlier) {
  auto* const fault = reinterpret_cast<int*>(&to->fault);
  if (atomicCAS(fault, static_cast<int>(ExactFault::none), static_cast<int>(outlier.fault)) !=
      static_cast<int>(ExactFault::none))
    return;
  to->kernel = outlier.kernel;
  to->value = outlier.value;
  to->limit = outlier.limit;
  to->exponent = outlier.exponent;
}

/// As GridSums of verify/cpu/kernels.
struct GridSteps {
  ExactOutlier* outlier = nullptr;  ///< null: sums are not exact
  KernelKind kernel = {};
  std::int64_t exponent = 0;
  float limit = 0;
  float shift = 0;  ///< near it, floats are whole multiples of a step, to which an addition rounds

  /// before + piece, rounded. Values on the grid are unchanged.
  [[nodiscard]] __device__ float added(float before, float piece) const {
    const float sum = __fadd_rn(before, __fsub_rn(__fadd_rn(piece, shift), shift));
    for (const float value : {piece, sum})
      if (!(fabsf(value) <= limit))
        report(outlier, {.fault = ExactFault::sum,
                         .kernel = kernel,
                         .value = value,
                         .limit = limit,
                         .exponent = exponent});
    return sum;
  }
};

[[nodiscard]] inline Result<GridSteps> grid_steps(const kernels::GradientGrid& grid,
                                                  KernelKind kernel, ExactOutlier* outlier) {
  MFSDP_TRY(check_outlier(kernel, outlier));
  const auto exponent = static_cast<int>(grid.exponent);
  return GridSteps{.outlier = outlier,
                   .kernel = kernel,
                   .exponent = grid.exponent,
                   .limit = std::ldexp(static_cast<float>(grid.limit), exponent),
                   .shift = std::ldexp(3.0F, exponent + std::numeric_limits<float>::digits - 2)};
}

}  // namespace mfsdp::cuda
