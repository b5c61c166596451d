// A layer's experts in Megatron-Core with its all-to-all dispatcher, fused permutation and
// Transformer Engine's grouped linear modules: one GEMM for each expert of the rank.
//
//   forward    norm, router, rows sorted by expert, exchange, rows of all ranks sorted by expert,
//              GEMMs, rows sorted by rank, exchange, sums of each token's rows; then a shared
//              expert
//   counts     reach the host before the exchange of rows, or before GEMMs if there is none. The
//              host waits for them and all earlier work; the GPU then waits for the host's next op
//   weights    of rows are applied to the activation, so that a token's result is a plain sum
//   GPT-OSS    PyTorch's own kernels clamp gates and ups before the fused activation, and add the
//              second biases in fp32: each is a pass over all rows
//   backward   keeps the first GEMM's input and output, the activation, the order of rows
#pragma once

#include <optional>
#include <string_view>

#include "sim/engines/te_modules.hpp"

namespace mfsdp {

/// Bytes of a microbatch's tensors in a layer with balanced experts. Rows are those of all tokens
/// that a rank's experts receive; a token counts once for each of its experts.
struct ExpertSizes {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t experts = 0;  ///< of the layer
  std::int64_t local = 0;    ///< of the rank
  std::int64_t peers = 1;    ///< expert-parallel ranks
  std::int64_t hidden = 0;   ///< columns, as the next two
  std::int64_t width = 0;
  std::int64_t shared = 0;
  std::int64_t state = 0;       ///< of a hidden state
  std::int64_t row_states = 0;  ///< of as many as there are rows
  std::int64_t gate_up = 0;
  std::int64_t product = 0;
};

[[nodiscard]] ExpertSizes expert_sizes(const PlanConfig& config);

class McoreExperts {
 public:
  /// Tensors that backward needs.
  struct Saved {
    TeNorm normed;
    std::optional<Tensor> logits{}, weights{}, map{}, order{}, row_weights{}, input{}, gate_up{},
        clamped{}, product{}, shared_gate_up{}, shared_product{};
  };

  McoreExperts(StepBuilder& step, const PlanConfig& config, TeModules& modules,
               const WeightHooks& hooks)
      : step_(step),
        model_(config.model),
        gradient_(size_of(config.grad_dtype)),
        again_(config.recompute.kind == Recompute::selective),
        sizes_(expert_sizes(config)),
        modules_(modules),
        hooks_(hooks) {}

  /// Returns the result to be added to the residual; with `keep`, stores in `kept` the tensors that
  /// backward needs.
  [[nodiscard]] Tensor forward(const LayerWeights& weights, Saved& kept, bool keep);
  /// Returns the gradient of the norm's input. Frees the tensors that forward kept.
  [[nodiscard]] Tensor backward(const LayerWeights& weights, Saved& kept);

 private:
  [[nodiscard]] bool exchanges() const { return sizes_.peers > 1; }
  [[nodiscard]] bool clamps() const { return model_.swiglu_limit.num != 0; }

  Tensor allocate(std::string_view name, std::int64_t bytes,
                  Category category = Category::activation) {
    return step_.allocate(name, bytes, category);
  }
  void elementwise(KernelKind kind, std::string_view name, const Traffic& traffic) {
    step_.memory_bound(kind, name, traffic);
  }
  void drop(std::optional<Tensor>& tensor);
  void use_all(const std::vector<std::size_t>& weights);
  void ready_all(const std::vector<std::size_t>& weights);
  void grouped(GemmKind kind, std::string_view name, std::int64_t outputs, std::int64_t inputs);

  void route(const ExpertWeights& weights, Saved& kept);
  void count_rows(Saved& kept);
  /// Allocates moved or reordered rows; frees the source.
  [[nodiscard]] Tensor moved(std::string_view name, Tensor from);
  [[nodiscard]] Tensor exchanged(std::string_view name, Tensor from);
  void exchange_weights(std::string_view name);
  [[nodiscard]] Tensor activate(Saved& kept);
  [[nodiscard]] Tensor activate_backward(Saved& kept, Tensor product);
  void add_bias();
  void bias_backward();
  [[nodiscard]] Tensor with_shared(const ExpertWeights& weights, Saved& kept, Tensor sum,
                                   bool keep);
  [[nodiscard]] Tensor shared_backward(const ExpertWeights& weights, Saved& kept);
  [[nodiscard]] Tensor experts_backward(const ExpertWeights& weights, Saved& kept);
  [[nodiscard]] Tensor router_backward(const ExpertWeights& weights, Saved& kept, Tensor normed);

  StepBuilder& step_;
  const ModelShape& model_;
  std::int64_t gradient_;  ///< bytes of an element of main gradients
  bool again_;             ///< activation and norm are recomputed
  ExpertSizes sizes_;
  TeModules& modules_;
  const WeightHooks& hooks_;
};

}  // namespace mfsdp
