#include "gpu_backend/cuda/kernel_binder.hpp"

#include "core/plan/exact_sums.hpp"
#include "core/runtime/calls/take_attention.hpp"
#include "core/runtime/calls/take_gemm.hpp"
#include "core/runtime/calls/take_sums.hpp"
#include "core/runtime/calls/take_tokens.hpp"
#include "core/runtime/calls/take_update.hpp"
#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/gemm_call.hpp"
#include "gpu_backend/cuda/kernels/sums.hpp"
#include "gpu_backend/cuda/kernels/tokens.hpp"
#include "gpu_backend/cuda/kernels/update.hpp"

namespace mfsdp::cuda {

Result<Launch> KernelBinder::bind(const KernelCall& call, cudaStream_t stream) {
  MFSDP_LET(outlier, this->outlier(*call.kernel));
  switch (call.kernel->kind) {  // one line a kind
    case KernelKind::accumulate:
    case KernelKind::cast: return bind_accumulate(call, outlier, stream);
    case KernelKind::adamw:
    case KernelKind::sgd: return bind_update(call, stream);
    case KernelKind::attention_backward: return bind_attention_backward(call, stream);
    case KernelKind::attention_forward: return bind_attention_forward(call, stream);
    case KernelKind::bias_grad: return bind_bias_grad(call, outlier, stream);
    case KernelKind::cross_entropy:
    case KernelKind::cross_entropy_loss: return bind_cross_entropy(call, stream);
    case KernelKind::embedding_backward: return bind_embedding_backward(call, outlier, stream);
    case KernelKind::embedding_forward: return bind_embedding_forward(call, stream);
    case KernelKind::gemm: return bind_gemm(call, outlier, stream);
    case KernelKind::loss_finish: return bind_loss_finish(call, stream);
    case KernelKind::norm_finish: return bind_norm_finish(call, outlier, stream);
    case KernelKind::norm_partial: return bind_norm_partial(call, outlier, stream);
    case KernelKind::norm_weight_grad: return bind_norm_weight_grad(call, outlier, stream);
    case KernelKind::qk_norm_rope_backward:
      return bind_qk_norm_rope_backward(call, outlier, stream);
    case KernelKind::qk_norm_rope_forward: return bind_qk_norm_rope_forward(call, stream);
    case KernelKind::rms_norm_backward: return bind_rms_norm_backward(call, outlier, stream);
    case KernelKind::rms_norm_forward: return bind_rms_norm_forward(call, stream);
    case KernelKind::rope_backward:
    case KernelKind::rope_forward: return bind_rope(call, stream);
    case KernelKind::swiglu_backward: return bind_swiglu_backward(call, stream);
    case KernelKind::swiglu_forward: return bind_swiglu_forward(call, stream);
    case KernelKind::token_copy: return bind_token_copy(call, stream);
    case KernelKind::zero_padding: return bind_zero_padding(call, stream);
  }
  return fail("kernel", "expected one of the kinds of the plan");
}

// ---- products and attention --------------------------------------------------------------------

Result<GemmPlanner*> KernelBinder::gemm() {
  if (!gemm_) {
    MFSDP_LET(made, GemmPlanner::create(gemm_settings_));
    gemm_ = std::move(made);
  }
  return &*gemm_;
}

Result<AttentionPlanner*> KernelBinder::attention() {
  if (!attention_) {
    MFSDP_LET(made, AttentionPlanner::create());
    attention_ = std::move(made);
  }
  return &*attention_;
}

Result<void> KernelBinder::offer(std::span<const GemmAlgorithm> algorithms) {
  MFSDP_LET(planner, gemm());
  planner->offer(algorithms);
  return {};
}

std::vector<GemmAlgorithm> KernelBinder::chosen() const {
  return gemm_ ? gemm_->chosen() : std::vector<GemmAlgorithm>{};
}

Result<Launch> KernelBinder::bind_gemm(const KernelCall& call, ExactOutlier* outlier,
                                       cudaStream_t stream) {
  Launch launch;
  const auto bind = [&](const auto& k) -> Result<void> {
    MFSDP_LET(planner, gemm());
    MFSDP_TRY(prepare(*planner, k, stream));
    launch = [planner, k, outlier, stream] { return run(*planner, k, stream, outlier); };
    return {};
  };
  MFSDP_TRY(kernels::with_gemm(CudaTypes{}, call, bind));
  return launch;
}

Result<Launch> KernelBinder::bind_attention_forward(const KernelCall& call, cudaStream_t stream) {
  return bind_by_type(call, "query", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_attention_forward<T>(call));
    MFSDP_LET(planner, attention());
    MFSDP_TRY(planner->prepare(k));
    return [planner, k, stream] { return planner->run(k, stream); };
  });
}

Result<Launch> KernelBinder::bind_attention_backward(const KernelCall& call, cudaStream_t stream) {
  return bind_by_type(call, "query", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_attention_backward<T>(call));
    MFSDP_LET(planner, attention());
    MFSDP_TRY(planner->prepare(k));
    return [planner, k, stream] { return planner->run(k, stream); };
  });
}

// ---- sums --------------------------------------------------------------------------------------

Result<ExactOutlier*> KernelBinder::outlier(const Kernel& kernel) {
  if (kernel.find_attribute(exact_attribute::grid_exponent) == nullptr) return nullptr;
  if (outlier_ == nullptr) {
    MFSDP_LET(made, allocate_device(sizeof(ExactOutlier), "faults of exact sums"));
    MFSDP_TRY(check(cudaMemset(made.get(), 0, sizeof(ExactOutlier)), "cudaMemset"));
    outlier_ = std::move(made);
  }
  return reinterpret_cast<ExactOutlier*>(outlier_.get());
}

Result<void> KernelBinder::exact_outcome() const {
  if (outlier_ == nullptr) return {};
  ExactOutlier outlier;
  MFSDP_TRY(check(cudaMemcpy(&outlier, outlier_.get(), sizeof outlier, cudaMemcpyDeviceToHost),
                  "cudaMemcpy"));
  return check_exact(outlier);
}

Result<Launch> KernelBinder::bind_cross_entropy(const KernelCall& call, cudaStream_t stream) {
  const auto bind = [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_cross_entropy<T>(call, settings_));
    return [k, stream] { return cross_entropy(k, stream); };
  };
  const bool loss_alone = call.kernel->kind == KernelKind::cross_entropy_loss;
  return bind_by_type(call, "logits", [&]<class T>(TypeTag<T> type) {
    return loss_alone ? bind(TypeTag<const T>{}) : bind(type);
  });
}

// ---- the optimizer -----------------------------------------------------------------------------

/// Copied once: they are the same in every step.
Result<std::span<const kernels::DecayRun>> KernelBinder::on_device(
    std::span<const kernels::DecayRun> runs) {
  if (runs.empty()) return std::span<const kernels::DecayRun>{};
  MFSDP_LET(memory, allocate_device(runs.size_bytes(), "which elements decay"));
  MFSDP_TRY(check(cudaMemcpy(memory.get(), runs.data(), runs.size_bytes(), cudaMemcpyHostToDevice),
                  "cudaMemcpy"));
  const auto* first = reinterpret_cast<const kernels::DecayRun*>(memory.get());
  decay_runs_.push_back(std::move(memory));
  return std::span(first, runs.size());
}

Result<Launch> KernelBinder::bind_update(const KernelCall& call, cudaStream_t stream) {
  Launch launch;
  MFSDP_LET(host_runs, kernels::take_decay_runs(call, *settings_.program));
  const auto bind = [&]<class G, class W, class C>(TypeTag<G>, TypeTag<W>,
                                                   TypeTag<C>) -> Result<void> {
    if constexpr (std::is_same_v<W, Bf16> && std::is_same_v<C, float>) {
      return fail("kernel " + std::string(to_string(call.kernel->kind)),
                  "expected main weights as wide as the compute weights, got bf16 beside fp32");
    } else {
      MFSDP_LET(k, (kernels::take_update<G, W, C>(call)));
      MFSDP_LET(runs, on_device(host_runs));
      launch = [k, optimizer = settings_.optimizer, runs, stream] {
        return update(k, optimizer, runs, stream);
      };
      return {};
    }
  };
  MFSDP_TRY(kernels::with_update_types(CudaTypes{}, call, bind));
  return launch;
}

}  // namespace mfsdp::cuda
