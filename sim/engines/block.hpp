// One block of a Llama as an engine computes it: its kernels, and the memory that they allocate,
// keep for backward and free. Weights and weight gradients belong to the schedule.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sim/engines/elementwise.hpp"
#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// Results of a block's backward.
struct BlockGradients {
  Tensor input;                 ///< of the block's input
  std::vector<Tensor> weights;  ///< in the order of the block's parameters
  std::vector<Tensor> later;    ///< freed after the block's backward
};

/// Fate of the gradient of a block's output. A residual carries it past a norm, and the norm's
/// input gradient is added to it.
enum class OutputGradient {
  overwritten,  ///< the sum replaces it in place
  replaced,     ///< Python holds it: the sum is a new tensor, then it is freed
  held,         ///< it lives until the end of the block's backward
};

/// How the schedule handles gradients.
struct GradientRules {
  OutputGradient output = OutputGradient::overwritten;
  /// Called with each weight gradient when autograd reaches the weight, after the inputs of the
  /// gradient's kernel were freed.
  std::function<void(Tensor)> made{};
  std::int64_t every = 0;  ///< every n-th block is recomputed; 0: as the configuration has it
};

/// Whether backward runs a block's forward again: every `every`-th block or, where that is 0, the
/// blocks of --recompute.
[[nodiscard]] inline bool recomputes_block(const PlanConfig& config, std::int64_t every,
                                           std::size_t layer) {
  const auto number = static_cast<std::int64_t>(layer);
  if (every != 0) return (number + 1) % every == 0;
  const RecomputePolicy& policy = config.recompute;
  return policy.kind == Recompute::full && (policy.full_blocks == 0 || number < policy.full_blocks);
}

class LlamaBlock {
 public:
  LlamaBlock(StepBuilder& step, const PlanConfig& config, std::int64_t every = 0)
      : step_(step), config_(config), sizes_(llama_sizes(config)), every_(every) {}
  virtual ~LlamaBlock() = default;
  LlamaBlock(const LlamaBlock&) = delete;
  LlamaBlock& operator=(const LlamaBlock&) = delete;

  /// Whether backward runs the block's forward again.
  [[nodiscard]] bool recomputes(std::size_t layer) const {
    return recomputes_block(config_, every_, layer);
  }
  /// Returns the output. `input` and the tensors that backward needs stay allocated.
  [[nodiscard]] virtual Tensor forward(std::size_t layer, Tensor input) = 0;
  /// Frees the tensors that forward kept, and `input`. `output`: the gradient of the block's
  /// output; it may become that of the input.
  [[nodiscard]] virtual BlockGradients backward(std::size_t layer, Tensor input, Tensor output) = 0;
  /// The next backward is the last one that reads the angles.
  virtual void free_angles(const Angles& angles) = 0;

 protected:
  StepBuilder& step_;         // NOLINT(*-non-private-member-*): shared by kinds of blocks
  const PlanConfig& config_;  // NOLINT(*-non-private-member-*)
  LlamaSizes sizes_;          // NOLINT(*-non-private-member-*)

 private:
  std::int64_t every_;
};

/// As PyTorch runs it, operator by operator.
[[nodiscard]] std::unique_ptr<LlamaBlock> eager_block(StepBuilder& step, const PlanConfig& config,
                                                      GradientRules rules = {});
/// The same, with every element-wise function compiled separately. Heads have no norms.
[[nodiscard]] std::unique_ptr<LlamaBlock> fused_block(StepBuilder& step, const PlanConfig& config,
                                                      GradientRules rules,
                                                      CompileCache cache = CompileCache::filled);
/// As Inductor fuses it. `every`: as in GradientRules.
[[nodiscard]] std::unique_ptr<LlamaBlock> compiled_block(StepBuilder& step,
                                                         const PlanConfig& config,
                                                         std::int64_t every = 0);

}  // namespace mfsdp
