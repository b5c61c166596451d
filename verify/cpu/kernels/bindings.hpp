// From a call's operands to the kernels of this folder: one function a kind, each checks all that
// it takes before it computes.
#pragma once

#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp::kernels {

[[nodiscard]] Result<void> run_gemm(const KernelCall& call);

[[nodiscard]] Result<void> run_rms_norm_forward(const KernelCall& call);
[[nodiscard]] Result<void> run_rms_norm_backward(const KernelCall& call);
[[nodiscard]] Result<void> run_norm_weight_grad(const KernelCall& call);
[[nodiscard]] Result<void> run_bias_grad(const KernelCall& call);

[[nodiscard]] Result<void> run_rope(const KernelCall& call);
[[nodiscard]] Result<void> run_qk_norm_rope_forward(const KernelCall& call);
[[nodiscard]] Result<void> run_qk_norm_rope_backward(const KernelCall& call);

[[nodiscard]] Result<void> run_attention_forward(const KernelCall& call);
[[nodiscard]] Result<void> run_attention_backward(const KernelCall& call);

[[nodiscard]] Result<void> run_swiglu_forward(const KernelCall& call);
[[nodiscard]] Result<void> run_swiglu_backward(const KernelCall& call);

[[nodiscard]] Result<void> run_token_copy(const KernelCall& call);
[[nodiscard]] Result<void> run_embedding_forward(const KernelCall& call);
[[nodiscard]] Result<void> run_embedding_backward(const KernelCall& call);
[[nodiscard]] Result<void> run_cross_entropy(const KernelCall& call,
                                             const KernelSettings& settings);
[[nodiscard]] Result<void> run_cross_entropy_loss(const KernelCall& call,
                                                  const KernelSettings& settings);

[[nodiscard]] Result<void> run_accumulate(const KernelCall& call);  ///< and cast
[[nodiscard]] Result<void> run_zero_padding(const KernelCall& call);
[[nodiscard]] Result<void> run_loss_finish(const KernelCall& call);
[[nodiscard]] Result<void> run_norm_partial(const KernelCall& call);
[[nodiscard]] Result<void> run_norm_finish(const KernelCall& call);

[[nodiscard]] Result<void> run_update(const KernelCall& call, const KernelSettings& settings);

}  // namespace mfsdp::kernels
