// A layer's experts as Megatron-Core has them with its all-to-all dispatcher, fused permutation and
// Transformer Engine's grouped products: one product for each expert that the rank has.
//
//   forward    norm, router, rows by expert, exchange, rows of all ranks by expert, products,
//              back by rank, exchange, sums of each token's rows; a shared expert after that
//   counts     come to the host before rows are exchanged, or before products where none are: it
//              waits for them and for all before them, and the GPU then for what it issues next
//   weights    of rows multiply the activation, so that what tokens get is a plain sum
//   GPT-OSS    gates and ups are clamped by PyTorch's own kernels before the fused activation, and
//              the second biases are added in fp32 by them: each is a pass over all rows
//   backward   keeps the first product's input and output, the activation, the order of rows
#pragma once

#include <optional>
#include <string_view>

#include "sim/engines/te_modules.hpp"

namespace mfsdp {

/// Bytes of a microbatch's tensors in a layer with experts in balance; rows are those of all tokens
/// that a rank's experts get, each token's as often as experts are chosen for it.
struct ExpertSizes {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  std::int64_t experts = 0;  ///< of the layer
  std::int64_t local = 0;    ///< of the rank
  std::int64_t peers = 1;    ///< ranks that the layer's experts are dealt out to
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
  /// What backward needs.
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

  /// What is added to the residual; into `kept` what backward needs, where `keep`.
  [[nodiscard]] Tensor forward(const LayerWeights& weights, Saved& kept, bool keep);
  /// The gradient of the norm's input. Frees what forward kept.
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
  /// Other rows, or the same in another order; frees what they are made of.
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
  bool again_;             ///< the activation and the norm are computed again
  ExpertSizes sizes_;
  TeModules& modules_;
  const WeightHooks& hooks_;
};

}  // namespace mfsdp
