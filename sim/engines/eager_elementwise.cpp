// PyTorch's own kernels, run consecutively.
#include <string>
#include <utility>

#include "sim/engines/elementwise.hpp"

namespace mfsdp {
namespace {

class EagerFunctions final : public Elementwise {
 public:
  using Elementwise::Elementwise;

  Normed norm(std::string_view name) override {
    const Normed made{.rows = allocate(name, sizes_.state),
                      .statistic = allocate(std::string(name) + "_rstd", sizes_.statistic)};
    kernel(KernelKind::rms_norm_forward, name, 2 * sizes_.state);
    return made;
  }

  NormGradients norm_backward(std::string_view name, Tensor gradient, Tensor input,
                              Tensor statistic) override {
    const std::string own(name);
    const NormGradients made{
        .input = allocate("d_" + own, sizes_.state),
        .weight = allocate(own + "_grad", kHalf * sizes_.hidden, Category::unsharded_grad)};
    kernel(KernelKind::rms_norm_backward, "d_" + own, 3 * sizes_.state);
    kernel(KernelKind::norm_weight_grad, own + "_grad", 2 * sizes_.state);
    step_.free({gradient, input, statistic});
    return made;
  }

  /// x * cosine + rotate_half(x) * sine in fp32, with copies of their own.
  Tensor rotate(std::string_view name, std::int64_t bytes) override {
    const auto named = [&](std::string_view part) {
      return std::string(name) + "_" + std::string(part);
    };
    const Tensor negated = allocate(named("negated"), bytes / 2);
    kernel(KernelKind::rope_forward, named("negate"), {bytes, AccessPattern::strided});
    const Tensor turned = allocate(named("turned"), bytes);
    kernel(KernelKind::rope_forward, named("turn"), {2 * bytes, AccessPattern::pieces});
    step_.free(negated);
    const auto scaled = [&](std::string_view part) {
      const Tensor wide = allocate(named("wide"), 2 * bytes);
      kernel(KernelKind::cast, named("widen"), {3 * bytes, AccessPattern::strided});
      const Tensor product = allocate(named(part), 2 * bytes);
      kernel(KernelKind::rope_forward, named(part), {4 * bytes, AccessPattern::strided});
      step_.free(wide);
      return product;
    };
    const Tensor straight = scaled("times_cosine");
    const Tensor crossed = scaled("times_sine");
    const Tensor sum = allocate(named("sum"), 2 * bytes);
    kernel(KernelKind::rope_forward, named("add"), 6 * bytes);
    step_.free({straight, crossed});
    const Tensor rotated = allocate(name, bytes);
    kernel(KernelKind::cast, named("narrow"), 3 * bytes);
    step_.free({sum, turned});
    return rotated;
  }

  Tensor rotate_backward(std::string_view name, Tensor gradient, std::int64_t bytes) override {
    const auto named = [&](std::string_view part) {
      return "d_" + std::string(name) + "_" + std::string(part);
    };
    const bool is_last = angles_ && name == kLastRotated;
    const auto narrowed = [&](std::string_view part) {
      const Tensor product = allocate(named(part), 2 * bytes);
      if (is_last) step_.free(angles_->sine);
      kernel(KernelKind::rope_backward, named(part), {4 * bytes, AccessPattern::strided});
      const Tensor narrow = allocate(named("narrow"), bytes);
      kernel(KernelKind::cast, named("narrow"), 3 * bytes);
      return std::pair(product, narrow);
    };
    const Tensor wide = allocate(named("wide"), 2 * bytes);
    kernel(KernelKind::cast, named("widen"), {3 * bytes, AccessPattern::strided});
    step_.free(gradient);
    const auto [by_sine, crossed] = narrowed("times_sine");
    step_.free(by_sine);
    const Tensor by_cosine = allocate(named("times_cosine"), 2 * bytes);
    kernel(KernelKind::rope_backward, named("times_cosine"), {4 * bytes, AccessPattern::strided});
    step_.free(wide);
    if (is_last) step_.free(std::exchange(angles_, std::nullopt)->cosine);
    const Tensor straight = allocate(named("straight"), bytes);
    kernel(KernelKind::cast, named("narrow"), 3 * bytes);
    step_.free(by_cosine);
    // The exchanged halves are copied into zeros of full size, and added.
    const auto slice_back = [&](std::string_view part) {
      const Tensor zeros = allocate(named(part), bytes);
      kernel(KernelKind::zero_padding, named("zeros"), bytes);
      kernel(KernelKind::rope_backward, named("slice"), {bytes, AccessPattern::strided});
      kernel(KernelKind::accumulate, named("add"), {3 * bytes, AccessPattern::strided});
      return zeros;
    };
    step_.free(slice_back("low"));
    const Tensor negated = allocate(named("negated"), bytes / 2);
    kernel(KernelKind::rope_backward, named("negate"), {bytes, AccessPattern::strided});
    step_.free(crossed);
    const Tensor high = slice_back("high");
    step_.free({negated, high});
    return straight;
  }

  Activated activate() override {
    const Tensor gate = allocate("activated", sizes_.product);
    kernel(KernelKind::swiglu_forward, "silu", {2 * sizes_.product, AccessPattern::strided});
    const Tensor product = allocate("product", sizes_.product);
    kernel(KernelKind::swiglu_forward, "multiply", {3 * sizes_.product, AccessPattern::strided});
    return {.gate = gate, .product = product};
  }

  Tensor activate_backward(const Activated& kept, Tensor gate_up, Tensor gradient) override {
    const Tensor up = allocate("d_up", sizes_.product);
    kernel(KernelKind::swiglu_backward, "d_up", 3 * sizes_.product);
    const Tensor activated = allocate("d_activated", sizes_.product);
    kernel(KernelKind::swiglu_backward, "d_activated",
           {3 * sizes_.product, AccessPattern::strided});
    step_.free({gradient, *kept.gate});
    const Tensor gate = allocate("d_gate", sizes_.product);
    kernel(KernelKind::swiglu_backward, "d_gate", {3 * sizes_.product, AccessPattern::strided});
    step_.free({activated, gate_up});
    const Tensor both = allocate("d_gate_up", sizes_.gate_up);
    kernel(KernelKind::swiglu_backward, "join", 2 * sizes_.gate_up);
    step_.free({gate, up});
    return both;
  }

  Loss loss(Tensor logits) override {
    const Tensor wide = allocate("logits_fp32", sizes_.logits_fp32, Category::logits);
    kernel(KernelKind::cast, "logits_cast", 3 * sizes_.logits);
    Loss made{};
    made.source = allocate("log_probabilities", sizes_.logits_fp32, Category::logits);
    // Reads its input three times: for the maximum, for the sum, and for the output.
    kernel(KernelKind::cross_entropy_loss, "log_softmax", 4 * sizes_.logits_fp32);
    made.value = allocate("loss", kScalar);
    made.weight = allocate("loss_weight", kScalar);
    kernel(KernelKind::cross_entropy_loss, "nll_loss", 8 * sizes_.tokens);
    step_.free({wide, logits});
    return made;
  }

  Tensor loss_backward(const Loss& loss) override {
    const Tensor chosen = allocate("d_log_probabilities", sizes_.logits_fp32, Category::logits);
    kernel(KernelKind::zero_padding, "d_log_probabilities", sizes_.logits_fp32);
    step_.free(loss.weight);
    const Tensor wide = allocate("d_logits_fp32", sizes_.logits_fp32, Category::logits);
    kernel(KernelKind::cross_entropy, "log_softmax_backward", 4 * sizes_.logits_fp32);
    step_.free({chosen, loss.source});
    const Tensor logits = allocate("d_logits", sizes_.logits, Category::logits);
    kernel(KernelKind::cast, "d_logits_cast", 3 * sizes_.logits);
    step_.free(wide);
    return logits;
  }
};

}  // namespace

std::unique_ptr<Elementwise> eager_functions(StepBuilder& step, const PlanConfig& config) {
  return std::make_unique<EagerFunctions>(step, config);
}

}  // namespace mfsdp
