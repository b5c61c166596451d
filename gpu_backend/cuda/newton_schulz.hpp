// The orthogonalisation of a matrix by the forms of core/plan/newton_schulz.hpp: products of
// cuBLASLt, and what stands between them.
//
// bf16 matrices are worked on in fp16, whose three bits more of fraction the polynomials of the
// Gram matrix need. All that is kept is multiplied by 2^10 then: elements of orthogonal matrices,
// and of normed ones even more, are so small that fp16 would have few bits of them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/base/error.hpp"
#include "core/plan/kernels/newton_schulz.hpp"
#include "gpu_backend/cuda/gemm.hpp"

namespace mfsdp::cuda {

/// Chooses the algorithms; the matrix and its workspace are overwritten where they are timed.
/// Errors: too small a workspace.
template <class T>
[[nodiscard]] Result<void> prepare(GemmPlanner& planner, const kernels::NewtonSchulz<T>& k,
                                   cudaStream_t stream);

/// Queues an orthogonalisation that was prepared. T: bf16 or fp32.
template <class T>
[[nodiscard]] Result<void> run(const GemmPlanner& planner, const kernels::NewtonSchulz<T>& k,
                               cudaStream_t stream);

}  // namespace mfsdp::cuda
