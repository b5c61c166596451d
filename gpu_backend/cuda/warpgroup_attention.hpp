// Attention by kernels/warpgroup_attention.hpp: which calls it takes, and their launches.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/attention.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

/// Whether the current device is of compute capability 9.0 and takes such a call
/// (core/plan/attention_choice.hpp), all of whose strides and addresses are multiples of 16 bytes.
[[nodiscard]] Result<bool> warpgroups_take(const kernels::AttentionForward<Bf16>& k);
[[nodiscard]] Result<bool> warpgroups_take(const kernels::AttentionBackward<Bf16>& k);

/// Of calls that they take.
[[nodiscard]] Result<Launch> warpgroup_launch(const kernels::AttentionForward<Bf16>& k,
                                              cudaStream_t stream);
[[nodiscard]] Result<Launch> warpgroup_launch(const kernels::AttentionBackward<Bf16>& k,
                                              cudaStream_t stream);

}  // namespace mfsdp::cuda
