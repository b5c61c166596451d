#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/model/hf_parts.hpp"
#include "core/model/model_shape.hpp"

namespace mfsdp {
namespace {

using Json = HfFields::Json;

/// Layers that use the choice of an earlier layer's indexer.
Result<void> read_shared_layers(const HfFields& fields, ModelShape& shape) {
  const Json* types = fields.find("indexer_types");
  if (types == nullptr) {
    // Classes derive the layers from these two in ways that differ.
    for (const char* const name : {"index_topk_freq", "index_topk_pattern"})
      if (const Json* rule = fields.find(name); rule != nullptr && *rule != 1)
        return fields.wrong(name, "none, or indexer_types beside it");
    return {};
  }
  fields.know({"index_topk_freq", "index_topk_pattern", "index_skip_topk_offset"});
  const auto known = [](const Json& type) { return type == "full" || type == "shared"; };
  if (!types->is_array() || std::cmp_not_equal(types->size(), shape.layers) ||
      !std::ranges::all_of(*types, known))
    return fields.wrong("indexer_types",
                        fmt::format("\"full\" or \"shared\" for each of {} layers", shape.layers));
  for (std::int64_t layer = 0; layer < shape.layers; ++layer)
    if ((*types)[static_cast<std::size_t>(layer)] == "shared")
      shape.shared_index_layers.push_back(layer);
  return {};
}

/// The layers with experts, where the file also states them one by one.
Result<void> check_mlp_types(const HfFields& fields, const ModelShape& shape) {
  const Json* types = fields.find("mlp_layer_types");
  if (types == nullptr) return {};
  const auto wrong = [&] {
    return fields.wrong("mlp_layer_types",
                        "\"dense\" for the first_k_dense_replace first layers, "
                        "\"sparse\" for all others");
  };
  if (!types->is_array() || std::cmp_not_equal(types->size(), shape.layers)) return wrong();
  for (std::int64_t layer = 0; layer < shape.layers; ++layer)
    if ((*types)[static_cast<std::size_t>(layer)] !=
        (shape.has_experts(layer) ? "sparse" : "dense"))
      return wrong();
  return {};
}

}  // namespace

Result<void> read_hf_indexer(const HfFields& fields, HfModel& model) {
  ModelShape& shape = model.shape;
  MFSDP_TRY(fields.required_integer("index_n_heads", ShapeLimits::heads, shape.index_heads));
  MFSDP_TRY(fields.required_integer("index_head_dim", ShapeLimits::heads, shape.index_dim));
  MFSDP_TRY(fields.required_integer("index_topk", ShapeLimits::dim, model.gaps.index_topk));
  if (shape.query_latent == 0)
    return fields.wrong("q_lora_rank", "a positive integer (the indexer reads that vector)");
  fields.know({"indexer_rope_interleave", "index_share_for_mtp_iteration", "qk_head_dim"});
  MFSDP_TRY(read_shared_layers(fields, shape));
  return check_mlp_types(fields, shape);
}

}  // namespace mfsdp
