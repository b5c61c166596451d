// FP8 on CUDA: largest magnitudes, casts with a scale of a whole tensor, transposes, and SwiGLU whose results are
// cast on the way. Each function queues its launches on the stream and returns; none allocates.
//
//   amax ─► factor = largest FP8 number / amax ─► code = saturate(round(value * factor))
//                                              └► scale = 1 / factor, by which readers multiply codes
//
// factor is 1 where amax is 0, infinite or NaN, and FLT_MAX where the division overflows. A NaN stays NaN, in `amax` too.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/kernels/fp8.hpp"

namespace mfsdp::cuda {

/// T: bf16, fp16, fp32.
template <class T>
[[nodiscard]] Result<void> amax(const kernels::Amax<T>& k, cudaStream_t stream);

/// Each tensor's column by one thread.
[[nodiscard]] Result<void> keep_amaxes(const kernels::AmaxHistory& k, cudaStream_t stream);

/// One read of the input gives both copies. T: bf16, fp16, fp32.
template <class T>
[[nodiscard]] Result<void> cast_scaled(const kernels::CastScaled<T>& k, cudaStream_t stream);

[[nodiscard]] Result<void> transpose(const kernels::Transpose& k, cudaStream_t stream);

/// Transposed copies need rows and cols in multiples of 16, and matrices that begin on multiples of
/// 16 bytes.
[[nodiscard]] Result<void> check_transposes(std::string_view kernel, std::int64_t rows,
                                            std::int64_t cols,
                                            std::initializer_list<const void*> matrices);

/// Where the codes of a matrix go, if its amax is known before its values are: that of earlier steps.
/// At least one copy; both as in kernels::CastScaled.
template <class F>
struct CastTargets {
  const float* amax = nullptr;
  F* output = nullptr;
  F* output_t = nullptr;
  float* output_scale = nullptr;
  float* next_amax = nullptr;
};

/// The codes that swiglu_forward and then cast_scaled give: of [rows, cols].
template <class T, class F>
[[nodiscard]] Result<void> swiglu_forward_cast(std::int64_t rows, std::int64_t cols,
                                               const T* gate_up, const CastTargets<F>& to,
                                               cudaStream_t stream);

/// The codes that swiglu_backward and then cast_scaled give: of the gradient of gate_up, [rows, 2 cols].
template <class T, class F>
[[nodiscard]] Result<void> swiglu_backward_cast(std::int64_t rows, std::int64_t cols,
                                                const T* gate_up, const T* d_product,
                                                const CastTargets<F>& to, cudaStream_t stream);

}  // namespace mfsdp::cuda
