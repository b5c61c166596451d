#include "sim/engines/mcore_weights.hpp"

namespace mfsdp {

McoreWeights mcore_weights(const ModelShape& model, UnitId root, const std::vector<UnitId>& units) {
  McoreWeights made;
  UnitId unit = root;
  const auto add = [&](const char* name, std::int64_t rows, std::int64_t columns = 1) {
    made.all.push_back({.unit = unit, .name = name, .rows = rows, .columns = columns});
    return made.all.size() - 1;
  };
  made.embedding = add("embedding", model.vocab, model.hidden);
  for (const UnitId layer : units) {
    unit = layer;
    LayerWeights weights;
    weights.out = add("out", model.hidden, model.attention_width());
    weights.norm1 = add("norm1", model.hidden);
    weights.qkv = add("qkv", model.qkv_width(), model.hidden);
    if (model.qkv_bias) weights.qkv_bias = add("qkv_bias", model.qkv_width());
    if (model.qk_norm) {
      weights.query_norm = add("query_norm", model.head_dim);
      weights.key_norm = add("key_norm", model.head_dim);
    }
    weights.norm2 = add("norm2", model.hidden);
    weights.gate_up = add("gate_up", 2 * model.intermediate, model.hidden);
    weights.down = add("down", model.hidden, model.intermediate);
    made.layers.push_back(weights);
  }
  unit = root;
  made.norm = add("norm", model.hidden);
  made.head = model.tied_embeddings ? made.embedding : add("head", model.vocab, model.hidden);
  return made;
}

}  // namespace mfsdp
