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

#include "core/base/error.hpp"
#include "core/plan/kernels/element_types.hpp"

namespace mfsdp::cuda {

/// amax = the largest magnitude of `count` elements, or of those and what `amax` was. T: bf16, fp16,
/// fp32.
template <class T>
struct AmaxCall {
  std::int64_t count = 0;
  const T* input = nullptr;
  bool adds = false;
  float* amax = nullptr;
};

template <class T>
[[nodiscard]] Result<void> amax(const AmaxCall<T>& k, cudaStream_t stream);

/// Codes of input[rows, cols], as stored, transposed, or both, from one read of the input. With
/// output_t, rows and cols are multiples of 16 and all matrices begin on multiples of 16 bytes.
template <class T, class F>
struct CastCall {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const T* input = nullptr;
  const float* amax = nullptr;    ///< [1]
  F* output = nullptr;            ///< [rows, cols], or null
  F* output_t = nullptr;          ///< [cols, rows], or null
  float* output_scale = nullptr;  ///< [1]
  float* next_amax = nullptr;     ///< [1], or null: becomes at least the input's largest magnitude
};

/// T: bf16, fp16, fp32. F: either FP8 type.
template <class T, class F>
[[nodiscard]] Result<void> cast_scaled(const CastCall<T, F>& k, cudaStream_t stream,
                                       int tile_group = 8);

/// output[cols, rows] = the transpose of input[rows, cols], elements of one byte. Both dimensions
/// are multiples of 16 and both matrices begin on multiples of 16 bytes.
[[nodiscard]] Result<void> transpose_bytes(std::int64_t rows, std::int64_t cols,
                                           const std::uint8_t* input, std::uint8_t* output,
                                           cudaStream_t stream, int tile_group = 8);

/// Where the codes of a matrix go, if its amax is known before its values are: that of earlier steps.
/// At least one copy; both as in CastCall.
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
