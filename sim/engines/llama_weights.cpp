#include "sim/engines/llama_weights.hpp"

namespace mfsdp {

std::vector<Weight> block_weights(const ModelShape& model) {
  using enum BlockPart;
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
  std::vector<Weight> weights{{"embedding", model.vocab, model.hidden}, {"norm", model.hidden}};
  if (!model.tied_embeddings) weights.push_back({"head", model.vocab, model.hidden});
  return weights;
}

}  // namespace mfsdp
