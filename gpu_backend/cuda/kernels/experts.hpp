// Routing to experts, and rows in the order of experts (core/plan/kernels/experts.hpp) on CUDA, for
// bf16, fp16 and fp32. Launches are queued on the stream. No result depends on the order of blocks.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/base/error.hpp"
#include "core/plan/kernels/experts.hpp"
#include "core/plan/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"

namespace mfsdp::cuda {

/// A warp keeps the logits of a token in its registers.
inline constexpr std::int64_t kMostExperts = 1024;

/// Errors: more than kMostExperts. For all kernels that index by expert.
[[nodiscard]] Result<void> check_experts(std::int64_t experts);

template <class T>
[[nodiscard]] Result<void> router_forward(const kernels::RouterForward<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> router_backward(const kernels::RouterBackward<T>& k,
                                           cudaStream_t stream);

/// Bytes of workspace for expert_order(): a count of each expert in each block of tokens.
[[nodiscard]] std::int64_t expert_order_workspace(const kernels::RoutingSizes& sizes);

[[nodiscard]] Result<void> check_order_workspace(std::int64_t needed, std::int64_t bytes);

/// Three launches. The error names the required workspace.
[[nodiscard]] Result<void> expert_order(const kernels::ExpertOrder& k, cudaStream_t stream);

/// One launch each. Rows beyond the capacity are reported in `outlier`.
[[nodiscard]] Result<void> peer_order(const kernels::PeerOrder& k, ExactOutlier* outlier,
                                      cudaStream_t stream);
[[nodiscard]] Result<void> arrival_order(const kernels::ArrivalOrder& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> permute_rows(const kernels::PermuteRows<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> combine_rows(const kernels::CombineRows<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> sigmoid_forward(const kernels::SigmoidForward<T>& k,
                                           cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> sigmoid_backward(const kernels::SigmoidBackward<T>& k,
                                            cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> add_bias(const kernels::AddBias<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> expert_bias_forward(const kernels::ExpertBiasForward<T>& k,
                                               cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> expert_bias_dots(const kernels::ExpertBiasDots<T>& k,
                                            cudaStream_t stream);

/// G: bf16, fp16 or fp32. `outlier`: null without --exact-sums.
template <class T, class G>
[[nodiscard]] Result<void> expert_bias_gradient(const kernels::ExpertBiasGradient<T, G>& k,
                                                cudaStream_t stream,
                                                ExactOutlier* outlier = nullptr);

template <class T>
[[nodiscard]] Result<void> weighted_swiglu_forward(const kernels::WeightedSwigluForward<T>& k,
                                                   cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> weighted_swiglu_backward(const kernels::WeightedSwigluBackward<T>& k,
                                                    cudaStream_t stream);

}  // namespace mfsdp::cuda
