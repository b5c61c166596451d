#include "sim/engines/module_weights.hpp"

#include <algorithm>
#include <cassert>

#include "sim/engines/expert_ops.hpp"

namespace mfsdp {
namespace {

void add_attention(std::vector<Weight>& weights, const ModelShape& model) {
  using enum BlockPart;
  const std::int64_t queries = model.heads * model.head_dim;
  const std::int64_t keys = model.kv_heads * model.head_dim;
  const auto add = [&](const std::string& name, std::int64_t rows) {
    weights.push_back({name, rows, model.hidden, attention});
    if (model.qkv_bias) weights.push_back({name + "_bias", rows, 1, attention});
  };
  if (model.fused_weights) {
    add("qkv", model.qkv_width());
  } else {
    add("query", queries);
    add("key", keys);
    add("value", keys);
  }
  weights.push_back({"out", model.hidden, queries, attention});
  if (!model.qk_norm) return;
  weights.push_back({"query_norm", model.qk_norm_width(model.heads), 1, attention});
  weights.push_back({"key_norm", model.qk_norm_width(model.kv_heads), 1, attention});
}

void add_mlp(std::vector<Weight>& weights, const ModelShape& model) {
  using enum BlockPart;
  if (model.fused_weights) {
    weights.push_back({"gate_up", 2 * model.intermediate, model.hidden, mlp});
  } else {
    weights.push_back({"gate", model.intermediate, model.hidden, mlp});
    weights.push_back({"up", model.intermediate, model.hidden, mlp});
  }
  weights.push_back({"down", model.hidden, model.intermediate, mlp});
}

}  // namespace

std::vector<Weight> module_weights(const PlanConfig& config, Modules modules, std::int64_t layer) {
  const ModelShape& model = config.model;
  if (model.experts != 0) return titan_block_weights(config, layer);
  std::vector<Weight> weights;
  add_attention(weights, model);
  add_mlp(weights, model);
  // torchtitan's w1, w2, w3 are gate, down and up.
  if (modules == Modules::torchtitan) std::swap(weights.end()[-1], weights.end()[-2]);
  if (model.traits().input_norms) weights.push_back({"norm1", model.hidden});
  if (model.output_norms || !model.traits().input_norms)
    weights.push_back({"attention_norm", model.hidden});
  if (model.traits().input_norms) weights.push_back({"norm2", model.hidden});
  if (model.output_norms || !model.traits().input_norms)
    weights.push_back({"mlp_norm", model.hidden});
  return weights;
}

std::size_t position_of(const std::vector<Weight>& weights, std::string_view name) {
  const auto found = std::ranges::find(weights, name, &Weight::name);
  assert(found != weights.end());
  return static_cast<std::size_t>(found - weights.begin());
}

}  // namespace mfsdp
