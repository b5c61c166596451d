// Element-wise functions of a Llama whose blocks run operator by operator: norms, rotations, SwiGLU
// and the loss. Each is either several kernels of PyTorch, or compiled by Inductor separately into
// one or two kernels, as in fused kernels of libraries.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// Whether Inductor finds kernels compiled earlier. With an empty cache it times several variants
/// of each, with a buffer as large as the L2 cache.
enum class CompileCache { filled, empty };

struct Normed {
  Tensor rows;
  Tensor statistic;  ///< one a row
};

struct NormGradients {
  Tensor input;
  Tensor weight;
};

/// SwiGLU's result.
struct Activated {
  std::optional<Tensor> gate{};  ///< after SiLU, if backward reads it
  Tensor product;
};

/// The loss, and the tensors that it keeps for backward.
struct Loss {
  Tensor value;
  Tensor weight;     ///< tokens that count
  Tensor source;     ///< input of the gradient
  Tensor largest{};  ///< of each row, if `source` is the logits
  Tensor normalizer{};
};

/// Cosines and sines of RoPE, if a step computes them.
struct Angles {
  Tensor cosine;
  Tensor sine;
};

class Elementwise {
 public:
  Elementwise(StepBuilder& step, const PlanConfig& config)
      : step_(step), sizes_(llama_sizes(config)) {}
  virtual ~Elementwise() = default;
  Elementwise(const Elementwise&) = delete;
  Elementwise& operator=(const Elementwise&) = delete;

  /// Norm of rows as wide as a hidden state.
  [[nodiscard]] virtual Normed norm(std::string_view name) = 0;
  /// Frees all three inputs.
  [[nodiscard]] virtual NormGradients norm_backward(std::string_view name, Tensor gradient,
                                                    Tensor input, Tensor statistic) = 0;
  /// Rotates queries or keys, `bytes` in bf16.
  [[nodiscard]] virtual Tensor rotate(std::string_view name, std::int64_t bytes) = 0;
  /// Frees `gradient`.
  [[nodiscard]] virtual Tensor rotate_backward(std::string_view name, Tensor gradient,
                                               std::int64_t bytes) = 0;
  /// The next rotate_backward() of queries, which follow keys, is the last one that reads these.
  void free_angles(const Angles& angles) { angles_ = angles; }
  [[nodiscard]] virtual Activated activate() = 0;
  /// Returns the gradient of gate and up. Frees these, the tensors of `kept`, and `gradient`.
  [[nodiscard]] virtual Tensor activate_backward(const Activated& kept, Tensor gate_up,
                                                 Tensor gradient) = 0;
  [[nodiscard]] virtual Loss loss(Tensor logits) = 0;
  /// Returns the gradient of the logits. Frees everything except the loss.
  [[nodiscard]] virtual Tensor loss_backward(const Loss& loss) = 0;

 protected:
  /// Backward processes queries after keys.
  static constexpr std::string_view kLastRotated = "query";

  Tensor allocate(std::string_view name, std::int64_t bytes,
                  Category category = Category::activation) {
    return step_.allocate(name, bytes, category);
  }
  void kernel(KernelKind kind, std::string_view name, const Traffic& traffic) {
    step_.memory_bound(kind, name, traffic);
  }

  static constexpr std::int64_t kScalar = 4;

  StepBuilder& step_;             // NOLINT(*-non-private-member-*): shared by kinds of functions
  LlamaSizes sizes_;              // NOLINT(*-non-private-member-*)
  std::optional<Angles> angles_;  // NOLINT(*-non-private-member-*): to be freed
};

/// PyTorch's kernels.
[[nodiscard]] std::unique_ptr<Elementwise> eager_functions(StepBuilder& step,
                                                           const PlanConfig& config);
/// Each function compiled separately.
[[nodiscard]] std::unique_ptr<Elementwise> fused_functions(
    StepBuilder& step, const PlanConfig& config, CompileCache cache = CompileCache::filled);
/// PyTorch's kernels, except for a loss that is compiled separately.
[[nodiscard]] std::unique_ptr<Elementwise> functions_with_compiled_loss(StepBuilder& step,
                                                                        const PlanConfig& config);

}  // namespace mfsdp
