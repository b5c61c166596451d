// What comes before and after a Llama's blocks: its inputs, the embedding, the final norm, the
// head's product and the loss.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sim/engines/elementwise.hpp"

namespace mfsdp {

class LlamaEnds {
 public:
  struct Gradients {
    Tensor state;  ///< of the last block's output
    Tensor head;
    Tensor norm;
  };

  /// `made` as in GradientRules.
  LlamaEnds(StepBuilder& step, const PlanConfig& config, std::unique_ptr<Elementwise> functions,
            std::function<void(Tensor)> made = {});

  /// Token ids and angles, before the first step.
  void keep_inputs();
  /// The first block's input.
  [[nodiscard]] Tensor embed();
  /// From the last block's output, which stays allocated, to the loss.
  void forward();
  /// The gradient of the loss, with which backward begins.
  void begin_backward();
  /// Frees `state`, the last block's output.
  [[nodiscard]] Gradients backward(Tensor state);
  /// The gradients of embedding, norm and, where it has its own, head. Frees `state`, the gradient
  /// of the first block's input.
  [[nodiscard]] std::vector<Tensor> embedding_backward(Tensor state, const Gradients& head);
  /// Frees the loss and its gradient.
  void finish();

 private:
  void made(Tensor weight) const {
    if (made_) made_(weight);
  }

  StepBuilder& step_;
  const PlanConfig& config_;
  LlamaSizes sizes_;
  std::unique_ptr<Elementwise> functions_;
  std::function<void(Tensor)> made_;
  Normed normed_;
  Loss loss_{};
  Tensor seed_;
};

}  // namespace mfsdp
