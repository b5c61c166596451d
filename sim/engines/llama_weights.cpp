#include "sim/engines/llama_weights.hpp"

namespace mfsdp {

namespace {

/// Each with its bias, in the order of MPT's modules.
std::vector<Weight> gpt_block_weights(const ModelShape& model) {
  using enum BlockPart;
  const std::int64_t hidden = model.hidden;
  std::vector<Weight> weights;
  const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t columns,
                       BlockPart part) {
    weights.push_back({name, rows, columns, part});
    weights.push_back({name + "_bias", rows, 1, part});
  };
  add("norm1", hidden, 1, norms);
  add("qkv", model.qkv_width(), hidden, attention);
  add("out", hidden, model.attention_width(), attention);
  add("norm2", hidden, 1, norms);
  add("up", model.intermediate, hidden, mlp);
  add("down", hidden, model.intermediate, mlp);
  return weights;
}

}  // namespace

std::vector<Weight> block_weights(const ModelShape& model) {
  using enum BlockPart;
  if (model.family == Family::gpt2) return gpt_block_weights(model);
  const std::int64_t hidden = model.hidden;
  std::vector<Weight> weights{
      {"norm1", hidden}, {"norm2", hidden}, {"qkv", model.qkv_width(), hidden, attention}};
  if (model.qkv_bias) weights.push_back({"qkv_bias", model.qkv_width(), 1, attention});
  if (model.qk_norm) {
    weights.push_back({"query_norm", model.head_dim, 1, attention});
    weights.push_back({"key_norm", model.head_dim, 1, attention});
  }
  weights.push_back({"out", hidden, model.attention_width(), attention});
  weights.push_back({"gate_up", 2 * model.intermediate, hidden, mlp});
  weights.push_back({"down", hidden, model.intermediate, mlp});
  return weights;
}

std::vector<Weight> root_weights(const ModelShape& model) {
  std::vector<Weight> weights{{"embedding", model.vocab, model.hidden}};
  if (!model.traits().rotates) weights.push_back({"positions", model.max_seq_len, model.hidden});
  weights.push_back({"norm", model.hidden});
  if (model.traits().layer_norms) weights.push_back({"norm_bias", model.hidden});
  if (!model.tied_embeddings) weights.push_back({"head", model.vocab, model.hidden});
  return weights;
}

}  // namespace mfsdp
