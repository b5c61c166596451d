#include "sim/engines/mcore_latent.hpp"

#include <string>
#include <utility>

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {

McoreLatent::McoreLatent(StepBuilder& step, const PlanConfig& config, TeModules& modules,
                         const WeightHooks& hooks)
    : step_(step),
      model_(config.model),
      modules_(modules),
      hooks_(hooks),
      tokens_(config.tokens_per_microbatch()),
      hidden_(model_.hidden),
      query_(model_.heads * model_.head_dim),
      kv_(model_.heads * model_.key_value_dim()),
      values_(model_.attention_width()),
      kv_down_(model_.kv_latent + model_.rotary_dim) {}

void McoreLatent::drop(std::optional<Tensor>& tensor) {
  if (tensor) step_.free(*std::exchange(tensor, std::nullopt));
}

Tensor McoreLatent::forward(const LayerWeights& layer, Saved& kept, bool keep) {
  const LatentWeights& weights = *layer.latent;
  hooks_.use(layer.norm1);
  kept.normed = modules_.norm("normed1", bytes_of(hidden_), tokens_ * kFull);
  heads(weights, kept);
  if (!keep) {
    step_.free({kept.normed.rows, kept.normed.statistic});
    if (kept.query_normed) step_.free({kept.query_normed->rows, kept.query_normed->statistic});
    step_.free({kept.kv_normed.rows, kept.kv_normed.statistic});
    drop(kept.query_latent);
    drop(kept.kv_latent);
  }
  mix(kept);
  hooks_.use(layer.out);
  const Tensor out = allocate("out", bytes_of(hidden_));
  gemm(GemmKind::forward, "out", hidden_, values_);
  if (!keep)
    for (std::optional<Tensor>* tensor :
         {&kept.query, &kept.key, &kept.value, &kept.mixed, &kept.scores, &kept.random_state})
      drop(*tensor);
  return out;
}

void McoreLatent::heads(const LatentWeights& weights, Saved& kept) {
  std::int64_t inputs = hidden_;
  if (weights.query_down) {
    inputs = model_.query_latent;
    hooks_.use(*weights.query_down);
    kept.query_latent = allocate("query_latent", bytes_of(inputs));
    gemm(GemmKind::forward, "query_down", inputs, hidden_);
  }
  hooks_.use(weights.kv_down);
  kept.kv_latent = allocate("kv_latent", bytes_of(kv_down_));
  gemm(GemmKind::forward, "kv_down", kv_down_, hidden_);
  if (weights.query_norm) {
    hooks_.use(*weights.query_norm);
    kept.query_normed = modules_.norm("query_latent_normed", bytes_of(inputs), tokens_ * kFull);
  }
  hooks_.use(weights.query);
  kept.query = allocate("query", bytes_of(query_));
  gemm(GemmKind::forward, "query", query_, inputs);
  hooks_.use(weights.kv_norm);
  kept.kv_normed = modules_.norm("kv_latent_normed", bytes_of(model_.kv_latent), tokens_ * kFull);
  hooks_.use(weights.kv);
  const Tensor both = allocate("kv", bytes_of(kv_));
  gemm(GemmKind::forward, "kv", kv_, model_.kv_latent);
  const std::int64_t turned = bytes_of(model_.heads * model_.rotary_dim);
  step_.memory_bound(KernelKind::rope_forward, "rope_query", {2 * turned, AccessPattern::strided});
  kept.key = allocate("key", bytes_of(query_));
  kept.value = allocate("value", bytes_of(values_));
  step_.memory_bound(KernelKind::rope_forward, "rope_key_and_value",
                     {bytes_of(kv_ + query_ + values_), AccessPattern::strided});
  step_.free(both);
}

void McoreLatent::mix(Saved& kept) {
  constexpr std::int64_t kRandomState = 16;
  kept.mixed = allocate("attention", bytes_of(values_));
  kept.random_state = allocate("attention_random_state", kRandomState);
  const Tensor workspace =
      allocate("attention_workspace", kAttentionWorkspaceBytes, Category::workspace);
  kept.scores = allocate("attention_lse", tokens_ * model_.heads * kFull);
  step_.attention(KernelKind::attention_forward, {.value_dim = model_.value_head_dim()});
  step_.free(workspace);
}

// ---- Backward -------------------------------------------------------------------------------

Tensor McoreLatent::product_backward(std::string_view name, std::int64_t outputs,
                                     std::int64_t inputs) {
  const Tensor input = allocate("d_" + std::string(name) + "_input", bytes_of(inputs));
  gemm(GemmKind::input_gradient, name, outputs, inputs);
  gemm(GemmKind::weight_gradient, name, outputs, inputs);
  modules_.keep_stand_in(outputs, inputs);
  return input;
}

Tensor McoreLatent::normed_backward(std::string_view name, std::string_view norm,
                                    std::int64_t outputs, std::int64_t inputs, const TeNorm& normed,
                                    Tensor gradient, std::size_t norm_weight, std::size_t weight) {
  const Tensor rows = product_backward(name, outputs, inputs);
  step_.free(normed.rows);
  const auto [input, norm_gradient, no_bias] =
      modules_.norm_backward(norm, bytes_of(inputs), inputs);
  step_.free({rows, normed.statistic, gradient});
  modules_.add_to_buffer(norm_weight, norm_gradient);
  hooks_.ready(weight);
  return input;
}

Tensor McoreLatent::backward(const LayerWeights& layer, Saved& kept) {
  const LatentWeights& weights = *layer.latent;
  const Tensor mixed = product_backward("out", hidden_, values_);
  hooks_.ready(layer.out);
  const Tensor query = allocate("d_query", bytes_of(query_));
  const Tensor key = allocate("d_key", bytes_of(query_));
  const Tensor value = allocate("d_value", bytes_of(values_));
  attention_backward(kept, mixed);

  const std::int64_t turned = bytes_of(model_.heads * model_.rotary_dim);
  const Tensor both = allocate("d_kv", bytes_of(kv_));
  step_.memory_bound(KernelKind::rope_backward, "d_key_and_value",
                     {bytes_of(kv_ + query_ + values_), AccessPattern::strided});
  step_.free({key, value});
  step_.memory_bound(KernelKind::rope_backward, "d_rope_query",
                     {2 * turned, AccessPattern::strided});
  const Tensor kv = normed_backward("kv", "kv_latent_normed", kv_, model_.kv_latent, kept.kv_normed,
                                    both, weights.kv_norm, weights.kv);
  const Tensor joined = allocate("d_kv_latent", bytes_of(kv_down_));
  step_.memory_bound(KernelKind::cast, "join_kv_latent",
                     {2 * bytes_of(kv_down_), AccessPattern::strided});
  step_.free(kv);
  drop(kept.kv_latent);
  Tensor from_query = query;
  if (weights.query_down) {
    from_query = normed_backward("query", "query_latent_normed", query_, model_.query_latent,
                                 *kept.query_normed, query, *weights.query_norm, weights.query);
    drop(kept.query_latent);
  }
  const Tensor rows = product_backward("kv_down", kv_down_, hidden_);
  step_.free(joined);
  hooks_.ready(weights.kv_down);
  const std::int64_t outputs = weights.query_down ? model_.query_latent : query_;
  const Tensor other =
      product_backward(weights.query_down ? "query_down" : "query", outputs, hidden_);
  step_.free(from_query);
  hooks_.ready(weights.query_down ? *weights.query_down : weights.query);
  step_.memory_bound(KernelKind::accumulate, "d_normed1_sum", 3 * bytes_of(hidden_));
  step_.free({other, kept.normed.rows});
  const auto [input, norm, no_bias] = modules_.norm_backward("normed1", bytes_of(hidden_), hidden_);
  step_.free({rows, kept.normed.statistic});
  modules_.add_to_buffer(layer.norm1, norm);
  return input;
}

/// Frees the tensors that attention kept, and the gradient of its output.
void McoreLatent::attention_backward(Saved& kept, Tensor mixed) {
  // Sums of dQ in fp32, a sum for each row, and 256 bytes, as with equal widths.
  step_.scratch("attention_backward_workspace",
                2 * bytes_of(query_) + tokens_ * model_.heads * kFull + kAttentionWorkspaceBytes);
  step_.attention(KernelKind::attention_backward, {.value_dim = model_.value_head_dim()});
  step_.free(mixed);
  for (std::optional<Tensor>* tensor :
       {&kept.query, &kept.key, &kept.value, &kept.mixed, &kept.scores, &kept.random_state})
    drop(*tensor);
}

}  // namespace mfsdp
