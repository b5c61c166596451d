#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/model/hf_parts.hpp"
#include "core/model/model_shape.hpp"

namespace mfsdp {
namespace {

using Json = HfFields::Json;

constexpr std::string_view kSomeExperts = "a layer with experts, or a dense model";

/// Layers with a dense MLP: those in mlp_only_layers, and all but every n-th by the family's step.
Result<void> read_dense_layers(const HfFields& fields, const HfFamily& family, ModelShape& shape) {
  std::int64_t step = 1;
  MFSDP_TRY(fields.integer(family.sparse_step, ShapeLimits::layers, step));
  if (step > shape.layers) return fields.wrong(family.sparse_step, kSomeExperts);
  std::vector<bool> dense(static_cast<std::size_t>(shape.layers));
  for (std::size_t layer = 0; layer < dense.size(); ++layer)
    dense[layer] = (static_cast<std::int64_t>(layer) + 1) % step != 0;
  if (const Json* named = fields.find("mlp_only_layers"); named != nullptr) {
    const auto expected = fmt::format("a list of layers from 0 to {}", shape.layers - 1);
    if (!named->is_array()) return fields.wrong("mlp_only_layers", expected);
    for (const Json& layer : *named) {
      if (!layer.is_number_integer() || layer < 0 || layer >= shape.layers)
        return fields.wrong("mlp_only_layers", expected);
      dense[layer.get<std::size_t>()] = true;
    }
  }
  for (std::size_t layer = 0; layer < dense.size(); ++layer)
    if (dense[layer]) shape.dense_layers.push_back(static_cast<std::int64_t>(layer));
  return {};
}

/// The first layers are dense, and all others have experts.
Result<void> read_first_dense(const HfFields& fields, const HfFamily& family, ModelShape& shape) {
  // The default is 3 in the class of V3 in transformers, and 0 in DeepSeek's own and in that of V2.
  if (family.sigmoid_routing)
    MFSDP_TRY(fields.stated(family.dense_layers_first, "the number of dense layers"));
  std::int64_t first = 0;
  MFSDP_TRY(fields.integer_between(0, shape.layers, family.dense_layers_first, first));
  for (std::int64_t layer = 0; layer < first; ++layer) shape.dense_layers.push_back(layer);
  std::int64_t every = 1;
  MFSDP_TRY(fields.integer("moe_layer_freq", ShapeLimits::layers, every));
  if (every != 1) return fields.wrong("moe_layer_freq", "1 (experts in all layers from there on)");
  return {};
}

/// Groups of experts, of which a token chooses some.
Result<void> read_groups(const HfFields& fields, ModelShape& shape) {
  MFSDP_TRY(fields.required_integer("n_group", shape.experts, shape.router_groups));
  if (shape.experts % shape.router_groups != 0)
    return fields.wrong("n_group",
                        fmt::format("a divisor of n_routed_experts ({})", shape.experts));
  return fields.required_integer("topk_group", shape.router_groups, shape.chosen_groups);
}

/// DeepSeek's routing: groups of experts, a factor of the weights; MiniMax's has neither. These
/// classes have no router losses.
Result<void> read_grouped_router(const HfFields& fields, const HfFamily& family,
                                 ModelShape& shape) {
  shape.sigmoid_routing = family.sigmoid_routing;
  const char* const method = family.sigmoid_routing ? "noaux_tc" : "group_limited_greedy";
  const Json* stated = fields.find("topk_method");
  const bool greedy = !family.sigmoid_routing && (stated == nullptr || *stated == "greedy");
  if (stated != nullptr && !greedy && *stated != method)
    return fields.wrong("topk_method", fmt::format("\"{}\"", method));
  const char* const scores = family.sigmoid_routing ? "sigmoid" : "softmax";
  if (const Json* function = fields.find("scoring_func");
      function != nullptr && *function != scores)
    return fields.wrong("scoring_func", fmt::format("\"{}\"", scores));
  if (family.sigmoid_routing) {
    shape.normalised_routing = true;
    if (!family.always_normalises)
      MFSDP_TRY(fields.boolean("norm_topk_prob", shape.normalised_routing));
    if (const Json* bias = fields.find("use_routing_bias"); bias != nullptr && *bias != true)
      return fields.wrong("use_routing_bias", "true");
  } else {
    MFSDP_TRY(fields.off("norm_topk_prob", "routing weights divided by their sum"));
  }
  fields.know({"n_group", "topk_group"});  // greedy choice ignores groups
  if (!greedy && family.groups_experts) MFSDP_TRY(read_groups(fields, shape));
  // Choosing all groups is the same as having none.
  if (shape.router_groups == shape.chosen_groups) shape.router_groups = shape.chosen_groups = 0;
  if (family.sigmoid_routing &&
      family.groups_experts)  // where it is absent: 2.5 in transformers, 1 in DeepSeek's own class
    MFSDP_TRY(fields.stated("routed_scaling_factor", "a positive number"));
  if (family.groups_experts) MFSDP_TRY(fields.number("routed_scaling_factor", shape.routed_scale));
  if (shape.routed_scale == Rational{1, 1}) shape.routed_scale = {0, 1};
  return fields.off("output_router_logits", "losses of the router");
}

/// Hugging Face's classes add the auxiliary loss where output_router_logits is on.
Result<void> read_router(const HfFields& fields, const HfFamily& family, ModelShape& shape) {
  shape.normalised_routing = family.always_normalises;
  if (family.always_normalises)
    fields.know({"norm_topk_prob"});
  else
    MFSDP_TRY(fields.boolean("norm_topk_prob", shape.normalised_routing));
  if (const Json* noise = fields.find("router_jitter_noise"); noise != nullptr && *noise != 0)
    return fields.wrong("router_jitter_noise", "0 (noise in the router's input is not modelled)");
  bool has_loss = false;
  MFSDP_TRY(fields.boolean("output_router_logits", has_loss));
  fields.know({"router_aux_loss_coef", "router_z_loss_coef"});  // used in the loss only
  if (!has_loss) return {};
  shape.router_aux_loss = family.aux_loss;
  const Json* coefficient = fields.find("router_aux_loss_coef");
  if (coefficient != nullptr && *coefficient == 0)
    shape.router_aux_loss = {0, 1};
  else
    MFSDP_TRY(fields.number("router_aux_loss_coef", shape.router_aux_loss));
  const Json* z_loss = fields.find("router_z_loss_coef");
  if (z_loss != nullptr && *z_loss != 0)
    MFSDP_TRY(fields.number("router_z_loss_coef", shape.router_z_loss));
  return {};
}

/// The number of experts in a layer; a file may state it under two names.
Result<void> read_expert_count(const HfFields& fields, const HfNames& names, ModelShape& shape) {
  if (names.newer_experts == nullptr || fields.find(names.newer_experts) == nullptr)
    return fields.required_integer(names.experts, ShapeLimits::experts, shape.experts);
  MFSDP_TRY(fields.required_integer(names.newer_experts, ShapeLimits::experts, shape.experts));
  std::int64_t older = shape.experts;
  MFSDP_TRY(fields.integer(names.experts, ShapeLimits::experts, older));
  if (older == shape.experts) return {};
  return fields.wrong(names.newer_experts, fmt::format("{} ({}) or none", older, names.experts));
}

}  // namespace

Result<void> read_hf_experts(const HfFields& fields, const HfFamily& family, ModelShape& shape) {
  const HfNames& names = family.names;
  if (names.experts == nullptr) return {};
  MFSDP_TRY(read_expert_count(fields, names, shape));
  MFSDP_TRY(fields.required_integer("num_experts_per_tok", shape.experts, shape.experts_per_token));
  shape.expert_intermediate = shape.intermediate;
  if (names.expert_intermediate != nullptr)
    MFSDP_TRY(fields.required_integer(names.expert_intermediate, ShapeLimits::dim,
                                      shape.expert_intermediate));
  if (family.counts_shared) {
    // The default is 1 or 2 in transformers and none in DeepSeek's own classes.
    MFSDP_TRY(fields.stated(names.shared_intermediate, "the number of shared experts, or null"));
    std::int64_t shared = 0;
    const std::int64_t most =
        std::min(ShapeLimits::experts, ShapeLimits::dim / shape.expert_intermediate);
    MFSDP_TRY(fields.integer_between(0, most, names.shared_intermediate, shared));
    shape.shared_intermediate = checked_mul(shared, shape.expert_intermediate);
  } else if (names.shared_intermediate != nullptr)
    MFSDP_TRY(fields.required_integer(names.shared_intermediate, ShapeLimits::dim,
                                      shape.shared_intermediate));

  if (family.dense_layers) MFSDP_TRY(read_dense_layers(fields, family, shape));
  if (family.dense_layers_first != nullptr) MFSDP_TRY(read_first_dense(fields, family, shape));
  if (std::ssize(shape.dense_layers) == shape.layers)
    return fields.wrong(family.dense_layers ? "mlp_only_layers" : family.dense_layers_first,
                        kSomeExperts);
  // A field that no layer uses is 0, so that equal models have equal shapes.
  if (shape.dense_layers.empty()) shape.intermediate = 0;
  if (const Json* bias = fields.find("qkv_bias"); bias != nullptr && *bias != family.qkv_bias)
    return fields.wrong("qkv_bias", family.qkv_bias ? "true" : "false");
  if (const Json* clip = fields.find("clip_qkv"); clip != nullptr)
    return fields.wrong("clip_qkv", "none (clipped queries and keys are not modelled)");
  if (family.swiglu_limit != 0) {
    shape.swiglu_alpha = family.swiglu_alpha;
    shape.swiglu_limit = {family.swiglu_limit, 1};
    MFSDP_TRY(fields.number("swiglu_limit", shape.swiglu_limit));
  }
  const Json* shared = fields.find("shared_intermediate_size");
  if (shared != nullptr && *shared != 0)
    return fields.wrong("shared_intermediate_size", "0 (not modelled here: a shared expert)");
  if (family.groups_experts || family.sigmoid_routing)
    return read_grouped_router(fields, family, shape);
  return read_router(fields, family, shape);
}

}  // namespace mfsdp
