// A Llama's element-wise functions where blocks run operator by operator: norms, rotations,
// SwiGLU and the loss. Either each is several of PyTorch's kernels, or Inductor has compiled each
// alone into one or two, which is what libraries' fused kernels do, too.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// What Inductor finds of kernels that it compiled before. Where its cache is empty it tries
/// several shapes of each, over a buffer as large as the L2 cache.
enum class CompileCache { filled, empty };

struct Normed {
  Tensor rows;
  Tensor statistic;  ///< one a row
};

struct NormGradients {
  Tensor input;
  Tensor weight;
};

/// Of gate and up.
struct Activated {
  std::optional<Tensor> gate{};  ///< after SiLU, where backward reads it
  Tensor product;
};

/// What the loss leaves for backward, and the loss.
struct Loss {
  Tensor value;
  Tensor weight;     ///< tokens that count
  Tensor source;     ///< what backward makes its gradient of
  Tensor largest{};  ///< of each row, where `source` is the logits
  Tensor normalizer{};
};

/// By which heads are turned, where a step has made them.
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

  /// Of rows as wide as a hidden state.
  [[nodiscard]] virtual Normed norm(std::string_view name) = 0;
  /// Frees all three.
  [[nodiscard]] virtual NormGradients norm_backward(std::string_view name, Tensor gradient,
                                                    Tensor input, Tensor statistic) = 0;
  /// Of queries or keys, `bytes` in bf16.
  [[nodiscard]] virtual Tensor rotate(std::string_view name, std::int64_t bytes) = 0;
  /// Frees `gradient`.
  [[nodiscard]] virtual Tensor rotate_backward(std::string_view name, Tensor gradient,
                                               std::int64_t bytes) = 0;
  /// The next rotate_backward() of queries, which come after keys, is the last that reads these.
  void free_angles(const Angles& angles) { angles_ = angles; }
  [[nodiscard]] virtual Activated activate() = 0;
  /// The gradient of gate and up. Frees them, what activate() kept, and the product's gradient.
  [[nodiscard]] virtual Tensor activate_backward(const Activated& kept, Tensor gate_up,
                                                 Tensor gradient) = 0;
  [[nodiscard]] virtual Loss loss(Tensor logits) = 0;
  /// The gradient of the logits. Frees all but the loss.
  [[nodiscard]] virtual Tensor loss_backward(const Loss& loss) = 0;

 protected:
  /// Backward comes to queries after keys.
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
/// Each function compiled alone.
[[nodiscard]] std::unique_ptr<Elementwise> fused_functions(
    StepBuilder& step, const PlanConfig& config, CompileCache cache = CompileCache::filled);
/// PyTorch's kernels, but for a loss that is compiled alone.
[[nodiscard]] std::unique_ptr<Elementwise> functions_with_compiled_loss(StepBuilder& step,
                                                                        const PlanConfig& config);

}  // namespace mfsdp
