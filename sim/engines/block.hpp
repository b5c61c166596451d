// One block of a Llama as an engine's kernels compute it: its kernels, and what they allocate, keep
// for backward and free. Weights and their gradients are the schedule's (fsdp2.cpp).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// What a block's backward leaves behind.
struct BlockGradients {
  Tensor input;                 ///< of the block's input
  std::vector<Tensor> weights;  ///< in the order of the block's parameters
  std::vector<Tensor> later;    ///< that are freed when backward has left the block
};

class Block {
 public:
  Block(StepBuilder& step, const PlanConfig& config)
      : step_(step), config_(config), sizes_(config) {}
  virtual ~Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  /// The output. `input` and whatever backward needs stay allocated.
  [[nodiscard]] virtual Tensor forward(std::size_t layer, Tensor input) = 0;
  /// Frees what forward kept, and `input`. `output`: the gradient of the block's output, which
  /// may become that of its input.
  [[nodiscard]] virtual BlockGradients backward(std::size_t layer, Tensor input, Tensor output) = 0;

  /// The next backward is the last that reads the angles.
  void free_angles(Tensor cosine, Tensor sine) {
    cosine_ = cosine;
    sine_ = sine;
  }

 protected:
  std::optional<Tensor> cosine_;  // NOLINT(*-non-private-member-*): to be freed after use
  std::optional<Tensor> sine_;    // NOLINT(*-non-private-member-*)
  StepBuilder& step_;             // NOLINT(*-non-private-member-*): shared by kinds of blocks
  const PlanConfig& config_;      // NOLINT(*-non-private-member-*)
  LlamaSizes sizes_;              // NOLINT(*-non-private-member-*)
};

/// As PyTorch runs it operation by operation.
[[nodiscard]] std::unique_ptr<Block> eager_block(StepBuilder& step, const PlanConfig& config);
/// As Inductor fuses it.
[[nodiscard]] std::unique_ptr<Block> compiled_block(StepBuilder& step, const PlanConfig& config);

}  // namespace mfsdp
