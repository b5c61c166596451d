// The parts of a Llama before and after its blocks: inputs, embedding, final norm, the head's GEMM
// and the loss.
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
  virtual ~LlamaEnds() = default;
  LlamaEnds(const LlamaEnds&) = delete;
  LlamaEnds& operator=(const LlamaEnds&) = delete;

  /// Allocates token ids and, of models with RoPE, angles, before the first step.
  void keep_inputs();
  /// Returns the first block's input.
  [[nodiscard]] virtual Tensor embed();
  /// From the last block's output, which stays allocated, to the loss.
  void forward();
  /// Its two halves: to the logits, and from there. Other code of models may free `state`.
  virtual void head(Tensor state);
  virtual void loss();
  /// Computes the gradient of the loss, with which backward begins.
  void begin_backward();
  /// Where the loss is outside of the model: computes the gradient of the logits.
  virtual void loss_backward() {}
  /// Frees `state`, the last block's output.
  [[nodiscard]] virtual Gradients backward(Tensor state);
  /// Returns the gradients of the embedding, the norm and an untied head. Frees `state`, the
  /// gradient of the first block's input.
  [[nodiscard]] virtual std::vector<Tensor> embedding_backward(Tensor state, const Gradients& head);
  /// Frees the loss and its gradient.
  void finish();
  /// Autograd adds both gradients of a tied embedding on this stream: where its view was made.
  void add_tied_on(StreamRole stream) { tied_stream_ = stream; }

 protected:
  StepBuilder& step_;                       // NOLINT(*-non-private-member-*): shared by code of
  const PlanConfig& config_;                // NOLINT(*-non-private-member-*): models
  LlamaSizes sizes_;                        // NOLINT(*-non-private-member-*)
  std::unique_ptr<Elementwise> functions_;  // NOLINT(*-non-private-member-*)
  Loss loss_{};                             // NOLINT(*-non-private-member-*)

  /// The sum of a tied embedding's two gradients, which are freed.
  [[nodiscard]] Tensor add_tied(Tensor head, Tensor embedding);

 private:
  void keep_angles();
  void made(Tensor weight) const {
    if (made_) made_(weight);
  }

  std::function<void(Tensor)> made_;
  Normed normed_;
  Tensor logits_;
  Tensor seed_;
  StreamRole tied_stream_ = StreamRole::compute;
};

}  // namespace mfsdp
