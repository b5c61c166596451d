// Combines two sets of functions: the loss of one, all other functions of the other.
#include <utility>

#include "sim/engines/elementwise.hpp"

namespace mfsdp {
namespace {

class WithCompiledLoss final : public Elementwise {
 public:
  WithCompiledLoss(StepBuilder& step, const PlanConfig& config)
      : Elementwise(step, config),
        eager_(eager_functions(step, config)),
        fused_(fused_functions(step, config)) {}

  Normed norm(std::string_view name) override { return eager_->norm(name); }
  NormGradients norm_backward(std::string_view name, Tensor gradient, Tensor input,
                              Tensor statistic) override {
    return eager_->norm_backward(name, gradient, input, statistic);
  }
  Tensor rotate(std::string_view name, std::int64_t bytes) override {
    return eager_->rotate(name, bytes);
  }
  Tensor rotate_backward(std::string_view name, Tensor gradient, std::int64_t bytes) override {
    return eager_->rotate_backward(name, gradient, bytes);
  }
  Activated activate() override { return eager_->activate(); }
  Tensor activate_backward(const Activated& kept, Tensor gate_up, Tensor gradient) override {
    return eager_->activate_backward(kept, gate_up, gradient);
  }
  Loss loss(Tensor logits) override { return fused_->loss(logits); }
  Tensor loss_backward(const Loss& loss) override { return fused_->loss_backward(loss); }

 private:
  std::unique_ptr<Elementwise> eager_;
  std::unique_ptr<Elementwise> fused_;
};

}  // namespace

std::unique_ptr<Elementwise> functions_with_compiled_loss(StepBuilder& step,
                                                          const PlanConfig& config) {
  return std::make_unique<WithCompiledLoss>(step, config);
}

}  // namespace mfsdp
