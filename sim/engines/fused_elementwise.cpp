// Each function compiled separately: one kernel, or two if weight gradients are summed over tokens.
#include <set>
#include <string>

#include "sim/engines/elementwise.hpp"

namespace mfsdp {
namespace {

class FusedFunctions final : public Elementwise {
 public:
  FusedFunctions(StepBuilder& step, const PlanConfig& config, CompileCache cache)
      : Elementwise(step, config), cache_(cache) {}

  Normed norm(std::string_view name) override {
    step_.host_work(kFunctionCall);
    const Tensor statistic = allocate(std::string(name) + "_rstd", sizes_.statistic);
    const Tensor rows = allocate(name, sizes_.state);
    kernel(KernelKind::rms_norm_forward, name, 2 * sizes_.state);
    return {.rows = rows, .statistic = statistic};
  }

  NormGradients norm_backward(std::string_view name, Tensor gradient, Tensor input,
                              Tensor statistic) override {
    step_.host_work(kFunctionCall);
    const std::string own(name);
    const Tensor partial = allocate(own + "_partial", sizes_.norm_partial);
    kernel(KernelKind::norm_weight_grad, own + "_partial", 2 * sizes_.state);
    const Tensor weight = allocate(own + "_grad", kHalf * sizes_.hidden, Category::unsharded_grad);
    kernel(KernelKind::norm_weight_grad, own + "_grad", sizes_.norm_partial);
    step_.free(partial);
    const Tensor made = allocate("d_" + own, sizes_.state);
    kernel(KernelKind::rms_norm_backward, "d_" + own, 3 * sizes_.state);
    step_.free({input, statistic, gradient});
    return {.input = made, .weight = weight};
  }

  Tensor rotate(std::string_view name, std::int64_t bytes) override {
    step_.host_work(kFunctionCall);
    const Tensor rotated = allocate(name, bytes);
    kernel(KernelKind::rope_forward, "rope_" + std::string(name),
           {2 * bytes, AccessPattern::strided});
    tune("rope_" + std::string(name));
    return rotated;
  }

  /// The compiled function requires a contiguous gradient.
  Tensor rotate_backward(std::string_view name, Tensor gradient, std::int64_t bytes) override {
    step_.host_work(kFunctionCall);
    const std::string own = "d_" + std::string(name);
    const Tensor contiguous = allocate(own + "_contiguous", bytes);
    kernel(KernelKind::cast, own + "_copy", {2 * bytes, AccessPattern::strided});
    const Tensor turned = allocate(own + "_turned", bytes);
    kernel(KernelKind::rope_backward, own + "_turned", 2 * bytes);
    tune(own);
    step_.free({contiguous, gradient});
    return turned;
  }

  Activated activate() override {
    step_.host_work(kFunctionCall);
    const Tensor product = allocate("product", sizes_.product);
    kernel(KernelKind::swiglu_forward, "swiglu", 3 * sizes_.product);
    tune("swiglu");
    return {.product = product};
  }

  Tensor activate_backward(const Activated& /*kept*/, Tensor gate_up, Tensor gradient) override {
    step_.host_work(kFunctionCall);
    const Tensor both = allocate("d_gate_up", sizes_.gate_up);
    kernel(KernelKind::swiglu_backward, "d_swiglu", {5 * sizes_.product, AccessPattern::strided});
    tune("d_swiglu");
    step_.free({gate_up, gradient});
    return both;
  }

  /// Reads the logits directly, without a copy in fp32.
  Loss loss(Tensor logits) override {
    step_.host_work(kFunctionCall);
    Loss made{};
    made.source = logits;
    made.largest = allocate("largest_logit", sizes_.statistic);
    made.normalizer = allocate("log_normalizer", sizes_.statistic);
    made.value = allocate("loss", kScalar);
    made.weight = allocate("loss_weight", kScalar);
    kernel(KernelKind::cross_entropy_loss, "largest_and_sum", 2 * sizes_.logits);
    kernel(KernelKind::cross_entropy_loss, "nll_loss", 8 * sizes_.tokens);
    return made;
  }

  Tensor loss_backward(const Loss& loss) override {
    step_.host_work(kFunctionCall);
    const Tensor logits = allocate("d_logits", sizes_.logits, Category::logits);
    kernel(KernelKind::cross_entropy, "d_loss", 2 * sizes_.logits);
    step_.free({loss.largest, loss.weight, loss.normalizer, loss.source});
    return logits;
  }

 private:
  void kernel(KernelKind kind, std::string_view name, const Traffic& traffic) {
    step_.launch_by(Launcher::compiled);
    Elementwise::kernel(kind, name, traffic);
    step_.launch_by(Launcher::operators);
  }

  /// Norms and the loss have only one shape each.
  void tune(const std::string& name) {
    if (cache_ == CompileCache::filled || !tuned_.insert(name).second) return;
    for (int shape = 0; shape < 2; ++shape)
      step_.free_once(step_.once(name + "_tuning", step_.l2_bytes(), Category::workspace));
  }

  CompileCache cache_;
  std::set<std::string> tuned_;
};

}  // namespace

std::unique_ptr<Elementwise> fused_functions(StepBuilder& step, const PlanConfig& config,
                                             CompileCache cache) {
  return std::make_unique<FusedFunctions>(step, config, cache);
}

}  // namespace mfsdp
