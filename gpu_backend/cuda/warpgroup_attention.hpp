// Attention by kernels/warpgroup_attention.hpp: the calls that it supports, and their launches.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/attention.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

/// Whether the current device has compute capability 9.0 and supports such a call
/// (core/plan/attention_choice.hpp). All strides and addresses must be multiples of 16 bytes.
[[nodiscard]] Result<bool> warpgroups_take(const kernels::AttentionForward<Bf16>& k);
[[nodiscard]] Result<bool> warpgroups_take(const kernels::AttentionBackward<Bf16>& k);

/// The launch of a supported call.
[[nodiscard]] Result<Launch> warpgroup_launch(const kernels::AttentionForward<Bf16>& k,
                                              cudaStream_t stream);
[[nodiscard]] Result<Launch> warpgroup_launch(const kernels::AttentionBackward<Bf16>& k,
                                              cudaStream_t stream);

}  // namespace mfsdp::cuda
