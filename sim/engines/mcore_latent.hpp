// Latent attention in Megatron-Core: a separate norm before the two GEMMs that compute the latent
// vectors; norms of these, fused into the GEMMs that compute heads; rotations by two fused kernels
// (queries in place, keys and values side by side); cuDNN's attention with keys wider than values.
#pragma once

#include <optional>
#include <string_view>

#include "sim/engines/te_modules.hpp"

namespace mfsdp {

class McoreLatent {
 public:
  /// Tensors that backward needs.
  struct Saved {
    TeNorm normed{}, kv_normed{};
    std::optional<TeNorm> query_normed{};
    std::optional<Tensor> query_latent{}, kv_latent{}, query{}, key{}, value{}, mixed{}, scores{},
        random_state{};
  };

  McoreLatent(StepBuilder& step, const PlanConfig& config, TeModules& modules,
              const WeightHooks& hooks);

  /// Returns the result to be added to the residual; with `keep`, stores in `kept` the tensors that
  /// backward needs.
  [[nodiscard]] Tensor forward(const LayerWeights& weights, Saved& kept, bool keep);
  /// Returns the gradient of the norm's input. Frees the tensors that forward kept.
  [[nodiscard]] Tensor backward(const LayerWeights& weights, Saved& kept);

 private:
  [[nodiscard]] std::int64_t bytes_of(std::int64_t columns) const {
    return checked_mul(checked_mul(tokens_, columns), kHalf);
  }
  Tensor allocate(std::string_view name, std::int64_t bytes,
                  Category category = Category::activation) {
    return step_.allocate(name, bytes, category);
  }
  void gemm(GemmKind kind, std::string_view name, std::int64_t outputs, std::int64_t inputs) {
    modules_.gemm(kind, name, tokens_, outputs, inputs);
  }
  void drop(std::optional<Tensor>& tensor);
  void heads(const LatentWeights& weights, Saved& kept);
  void mix(Saved& kept);
  void attention_backward(Saved& kept, Tensor mixed);
  /// For one GEMM: returns the gradient of its input, of `inputs` columns.
  [[nodiscard]] Tensor product_backward(std::string_view name, std::int64_t outputs,
                                        std::int64_t inputs);
  /// For a GEMM after a norm: returns the gradient of the norm's input.
  [[nodiscard]] Tensor normed_backward(std::string_view name, std::string_view norm,
                                       std::int64_t outputs, std::int64_t inputs,
                                       const TeNorm& normed, Tensor gradient,
                                       std::size_t norm_weight, std::size_t weight);

  StepBuilder& step_;
  const ModelShape& model_;
  TeModules& modules_;
  const WeightHooks& hooks_;
  std::int64_t tokens_;
  std::int64_t hidden_;   ///< columns, as those below
  std::int64_t query_;    ///< of all heads
  std::int64_t kv_;       ///< of all heads, without the rotated part
  std::int64_t values_;   ///< of all heads
  std::int64_t kv_down_;  ///< the latent vector and the rotated part
};

}  // namespace mfsdp
