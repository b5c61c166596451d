#include "sim/engines/mcore_weights.hpp"

#include <string>
#include <tuple>
#include <utility>

namespace mfsdp {
namespace {

class Weights {
 public:
  explicit Weights(const PlanConfig& config) : config_(config), model_(config.model) {}

  McoreWeights made(const McoreStage& stage, UnitId root, const std::vector<UnitId>& units) {
    for (std::size_t c = 0; c < stage.chunks.size(); ++c) {
      const std::size_t begin = made_.all.size();
      add_chunk(stage.chunks[c], root, units);
      for (std::size_t i = begin; i < made_.all.size(); ++i) made_.all[i].chunk = c;
    }
    return std::move(made_);
  }

 private:
  void add_chunk(const McoreChunk& chunk, UnitId root, const std::vector<UnitId>& units) {
    unit_ = root;
    if (chunk.has_embedding) {
      made_.embedding = add("embedding", model_.vocab, model_.hidden);
      if (!model_.traits().rotates)
        made_.positions = add("positions", model_.max_seq_len, model_.hidden);
    }
    for (std::int64_t i = 0; i < chunk.layers; ++i) {
      const std::int64_t layer = chunk.first_layer + i;
      unit_ = units[static_cast<std::size_t>(layer)];
      made_.layers.push_back(layer_weights(layer));
    }
    if (!chunk.has_head) return;
    unit_ = root;
    std::tie(made_.norm, made_.norm_bias) = add_norm("norm");
    const bool shares = model_.tied_embeddings && chunk.has_embedding;
    made_.head = shares ? made_.embedding : add("head", model_.vocab, model_.hidden);
  }

  std::size_t add(std::string name, std::int64_t rows, std::int64_t columns = 1,
                  bool dealt = false) {
    made_.all.push_back(
        {.unit = unit_, .name = std::move(name), .rows = rows, .columns = columns, .dealt = dealt});
    return made_.all.size() - 1;
  }

  /// The norm's weight and, of LayerNorm, its bias.
  std::pair<std::size_t, std::optional<std::size_t>> add_norm(const std::string& name) {
    const std::size_t weight = add_whole(name, model_.hidden);
    if (!model_.traits().layer_norms) return {weight, std::nullopt};
    return {weight, add_whole(name + "_bias", model_.hidden)};
  }

  /// A vector that is whole on all ranks of tp.
  std::size_t add_whole(const std::string& name, std::int64_t rows, bool of_heads = false) {
    const std::size_t weight = add(name, rows);
    made_.all[weight].whole = true;
    made_.all[weight].of_heads = of_heads;
    return weight;
  }

  LayerWeights layer_weights(std::int64_t layer) {
    LayerWeights weights;
    weights.layer = layer;
    const bool biases = model_.traits().biases;
    if (model_.traits().sinks) weights.sinks = add("sinks", model_.heads);
    weights.out = add("out", model_.hidden, model_.attention_width());
    if (biases) weights.out_bias = add_whole("out_bias", model_.hidden);
    std::tie(weights.norm1, weights.norm1_bias) = add_norm("norm1");
    if (model_.traits().latent_attention)
      weights.latent = latent_weights();
    else
      add_heads(weights);
    std::tie(weights.norm2, weights.norm2_bias) = add_norm("norm2");
    if (model_.has_experts(layer)) {
      weights.experts = expert_weights();
      return weights;
    }
    const std::int64_t inner = (model_.traits().gated ? 2 : 1) * model_.intermediate;
    weights.gate_up = add("gate_up", inner, model_.hidden);
    if (biases) weights.gate_up_bias = add("gate_up_bias", inner);
    weights.down = add("down", model_.hidden, model_.intermediate);
    if (biases) weights.down_bias = add_whole("down_bias", model_.hidden);
    return weights;
  }

  void add_heads(LayerWeights& weights) {
    weights.qkv = add("qkv", model_.qkv_width(), model_.hidden);
    if (model_.qkv_bias || model_.traits().biases)
      weights.qkv_bias = add("qkv_bias", model_.qkv_width());
    if (!model_.qk_norm) return;
    weights.query_norm = add_whole("query_norm", model_.head_dim, true);
    weights.key_norm = add_whole("key_norm", model_.head_dim, true);
  }

  LatentWeights latent_weights() {
    LatentWeights weights;
    std::int64_t inputs = model_.hidden;
    if (model_.query_latent != 0) {
      weights.query_down = add("query_down", model_.query_latent, model_.hidden);
      weights.query_norm = add("query_latent_norm", model_.query_latent);
      inputs = model_.query_latent;
    }
    weights.query = add("query", model_.heads * model_.head_dim, inputs);
    weights.kv_down = add("kv_down", model_.kv_latent + model_.rotary_dim, model_.hidden);
    weights.kv_norm = add("kv_latent_norm", model_.kv_latent);
    weights.kv = add("kv", model_.heads * model_.key_value_dim(), model_.kv_latent);
    return weights;
  }

  ExpertWeights expert_weights() {
    ExpertWeights weights;
    weights.router = add("router", model_.experts, model_.hidden);
    if (model_.traits().biases) weights.router_bias = add("router_bias", model_.experts);
    const std::int64_t width = model_.expert_intermediate;
    weights.gate_up = of_each_expert("experts_gate_up", 2 * width, model_.hidden);
    weights.down = of_each_expert("experts_down", model_.hidden, width);
    if (model_.shared_intermediate == 0) return weights;
    weights.shared_gate_up = add("shared_gate_up", 2 * model_.shared_intermediate, model_.hidden);
    weights.shared_down = add("shared_down", model_.hidden, model_.shared_intermediate);
    if (model_.has_gated_shared()) weights.shared_gate = add("shared_gate", 1, model_.hidden);
    return weights;
  }

  /// Matrices first, then biases, in the order of modules.
  std::vector<std::size_t> of_each_expert(const std::string& name, std::int64_t rows,
                                          std::int64_t columns) {
    std::vector<std::size_t> all;
    const bool dealt = config_.is_expert_parallel();
    const std::int64_t experts = config_.experts_per_rank();
    for (std::int64_t expert = 0; expert < experts; ++expert)
      all.push_back(add(name + std::to_string(expert), rows, columns, dealt));
    for (std::int64_t expert = 0; model_.traits().biases && expert < experts; ++expert)
      all.push_back(add(name + "_bias" + std::to_string(expert), rows, 1, dealt));
    return all;
  }

  const PlanConfig& config_;
  const ModelShape& model_;
  McoreWeights made_{};
  UnitId unit_{};
};

}  // namespace

McoreWeights mcore_weights(const PlanConfig& config, const McoreStage& stage, UnitId root,
                           const std::vector<UnitId>& units) {
  return Weights(config).made(stage, root, units);
}

}  // namespace mfsdp
