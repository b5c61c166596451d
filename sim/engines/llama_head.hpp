// What comes after a Llama's blocks: the final norm, the head's product and the loss.
#pragma once

#include <functional>
#include <memory>

#include "sim/engines/elementwise.hpp"

namespace mfsdp {

class LlamaHead {
 public:
  struct Gradients {
    Tensor state;  ///< of the last block's output
    Tensor head;
    Tensor norm;
  };

  /// `made` as in GradientRules.
  LlamaHead(StepBuilder& step, const PlanConfig& config, std::unique_ptr<Elementwise> functions,
            std::function<void(Tensor)> made = {});

  /// Of the last block's output, which stays allocated.
  void forward();
  /// The gradient of the loss, with which backward begins.
  void begin_backward();
  /// Frees `state`, the last block's output.
  [[nodiscard]] Gradients backward(Tensor state);
  /// Frees the loss and its gradient.
  void finish();

 private:
  void made(Tensor weight) const {
    if (made_) made_(weight);
  }

  StepBuilder& step_;
  LlamaSizes sizes_;
  std::unique_ptr<Elementwise> functions_;
  std::function<void(Tensor)> made_;
  Normed normed_;
  Loss loss_{};
  Tensor seed_;
};

}  // namespace mfsdp
