// Orthogonalisation of a matrix by the forms of core/plan/newton_schulz.hpp: GEMMs of cuBLASLt, and
// kernels between them.
//
// bf16 matrices are computed in fp16, because the polynomials of the Gram matrix need its three
// additional bits of fraction. Then stored matrices are multiplied by 2^10: elements of orthogonal
// matrices, and even more of normed ones, are so small that fp16 would keep few of their bits.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/base/error.hpp"
#include "core/plan/kernels/newton_schulz.hpp"
#include "gpu_backend/cuda/gemm.hpp"

namespace mfsdp::cuda {

/// Chooses the algorithms. If they are timed, the matrix and its workspace are overwritten. Errors:
/// the workspace is too small.
template <class T>
[[nodiscard]] Result<void> prepare(GemmPlanner& planner, const kernels::NewtonSchulz<T>& k,
                                   cudaStream_t stream);

/// Queues a prepared orthogonalisation. T: bf16 or fp32.
template <class T>
[[nodiscard]] Result<void> run(const GemmPlanner& planner, const kernels::NewtonSchulz<T>& k,
                               cudaStream_t stream);

}  // namespace mfsdp::cuda
