// One block of a Llama as an engine's kernels compute it: its kernels, and what they allocate, keep
// for backward and free. Weights and their gradients are the schedule's.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sim/engines/elementwise.hpp"
#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// What a block's backward leaves behind.
struct BlockGradients {
  Tensor input;                 ///< of the block's input
  std::vector<Tensor> weights;  ///< in the order of the block's parameters
  std::vector<Tensor> later;    ///< that are freed when backward has left the block
};

/// What becomes of the gradient of a block's output, which a residual carries past a norm, when
/// what the norm makes is added to it.
enum class OutputGradient {
  overwritten,  ///< the sum lies where it was
  replaced,     ///< something in Python holds it: the sum is another tensor, and it is freed
  held,         ///< it lives until backward has left the block
};

/// What the schedule around a block has to do with gradients.
struct GradientRules {
  OutputGradient output = OutputGradient::overwritten;
  /// A weight's gradient is there. Called when autograd comes to it, after what made it is freed.
  std::function<void(Tensor)> made{};
};

class LlamaBlock {
 public:
  LlamaBlock(StepBuilder& step, const PlanConfig& config)
      : step_(step), config_(config), sizes_(llama_sizes(config)) {}
  virtual ~LlamaBlock() = default;
  LlamaBlock(const LlamaBlock&) = delete;
  LlamaBlock& operator=(const LlamaBlock&) = delete;

  /// The output. `input` and whatever backward needs stay allocated.
  [[nodiscard]] virtual Tensor forward(std::size_t layer, Tensor input) = 0;
  /// Frees what forward kept, and `input`. `output`: the gradient of the block's output, which
  /// may become that of its input.
  [[nodiscard]] virtual BlockGradients backward(std::size_t layer, Tensor input, Tensor output) = 0;
  /// The next backward is the last that reads the angles.
  virtual void free_angles(const Angles& angles) = 0;

 protected:
  StepBuilder& step_;         // NOLINT(*-non-private-member-*): shared by kinds of blocks
  const PlanConfig& config_;  // NOLINT(*-non-private-member-*)
  LlamaSizes sizes_;          // NOLINT(*-non-private-member-*)
};

/// As PyTorch runs it operator by operator.
[[nodiscard]] std::unique_ptr<LlamaBlock> eager_block(StepBuilder& step, const PlanConfig& config,
                                                      GradientRules rules = {});
/// The same, with every element-wise function compiled alone. Heads have no norms.
[[nodiscard]] std::unique_ptr<LlamaBlock> fused_block(StepBuilder& step, const PlanConfig& config,
                                                      GradientRules rules,
                                                      CompileCache cache = CompileCache::filled);
/// As Inductor fuses it.
[[nodiscard]] std::unique_ptr<LlamaBlock> compiled_block(StepBuilder& step,
                                                         const PlanConfig& config);

}  // namespace mfsdp
