// Kernels between the GEMMs of an orthogonalisation (gpu_backend/cuda/newton_schulz.hpp). Input and
// output are matrices of T. Between, elements are H: fp16 for T bf16, fp32 for T fp32.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/error.hpp"
#include "core/runtime/scalar.hpp"

namespace mfsdp::cuda {

template <class T>
struct WorkingType {
  using type = T;
};
template <>
struct WorkingType<Bf16> {
  using type = Fp16;
};
template <class T>
using Working = typename WorkingType<T>::type;

/// 1 / (root of the sum of squares + 1e-30), written after the sums of `workspace`, which has 256
/// more bytes than these. Equal calls give equal bits.
template <class T>
[[nodiscard]] Result<float*> inverse_norm(std::span<const T> values, std::span<std::byte> workspace,
                                          cudaStream_t stream);

/// to[m, n] = scale * *inverse * matrix, or its transpose if it has more rows than columns; m is
/// the smaller side.
template <class T>
[[nodiscard]] Result<void> load_scaled(std::int64_t rows, std::int64_t cols, const T* matrix,
                                       float scale, const float* inverse, Working<T>* to,
                                       cudaStream_t stream);

/// The reverse: matrix = scale * from.
template <class T>
[[nodiscard]] Result<void> store_scaled(std::int64_t rows, std::int64_t cols,
                                        const Working<T>* from, float scale, T* matrix,
                                        cudaStream_t stream);

/// Copies the lower triangle of [m, m] to the upper one.
template <class H>
[[nodiscard]] Result<void> mirror(std::int64_t m, H* square, cudaStream_t stream);

/// to = a I + b first + c second. Only the lower triangle of `second` is read, and mirrored.
template <class H>
[[nodiscard]] Result<void> add_polynomial(std::int64_t m, float a, float b, const H* first, float c,
                                          const H* second, H* to, cudaStream_t stream);

}  // namespace mfsdp::cuda
