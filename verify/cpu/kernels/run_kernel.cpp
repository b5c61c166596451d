#include "verify/cpu/kernels/run_kernel.hpp"

#include "verify/cpu/kernels/bindings.hpp"

namespace mfsdp {

Result<void> run_kernel(const KernelCall& call, const KernelSettings& settings) {
  using namespace kernels;  // one line a kind
  switch (call.kernel->kind) {
    case KernelKind::accumulate:
    case KernelKind::cast: return run_accumulate(call);
    case KernelKind::adamw:
    case KernelKind::sgd: return run_update(call, settings);
    case KernelKind::attention_backward: return run_attention_backward(call);
    case KernelKind::attention_forward: return run_attention_forward(call);
    case KernelKind::bias_grad: return run_bias_grad(call);
    case KernelKind::cross_entropy: return run_cross_entropy(call, settings);
    case KernelKind::cross_entropy_loss: return run_cross_entropy_loss(call, settings);
    case KernelKind::embedding_backward: return run_embedding_backward(call);
    case KernelKind::embedding_forward: return run_embedding_forward(call);
    case KernelKind::gemm: return run_gemm(call);
    case KernelKind::loss_finish: return run_loss_finish(call);
    case KernelKind::norm_finish: return run_norm_finish(call);
    case KernelKind::norm_partial: return run_norm_partial(call);
    case KernelKind::norm_weight_grad: return run_norm_weight_grad(call);
    case KernelKind::qk_norm_rope_backward: return run_qk_norm_rope_backward(call);
    case KernelKind::qk_norm_rope_forward: return run_qk_norm_rope_forward(call);
    case KernelKind::rms_norm_backward: return run_rms_norm_backward(call);
    case KernelKind::rms_norm_forward: return run_rms_norm_forward(call);
    case KernelKind::rope_backward:
    case KernelKind::rope_forward: return run_rope(call);
    case KernelKind::swiglu_backward: return run_swiglu_backward(call);
    case KernelKind::swiglu_forward: return run_swiglu_forward(call);
    case KernelKind::token_copy: return run_token_copy(call);
    case KernelKind::zero_padding: return run_zero_padding(call);
  }
  return fail("kernel", "expected one of the kinds of the plan");
}

}  // namespace mfsdp
