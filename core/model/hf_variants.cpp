// Differences of attention and residuals that few families have.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/model/hf_parts.hpp"
#include "core/model/model_shape.hpp"

namespace mfsdp {
namespace {

using Json = HfFields::Json;

/// Layers without RoPE: those with 0 in no_rope_layers, or every n-th one.
Result<void> read_nope_layers(const HfFields& fields, const HfFamily& family, ModelShape& shape) {
  if (family.nope_interval == 0) return {};
  std::int64_t interval = family.nope_interval;
  MFSDP_TRY(fields.integer("no_rope_layer_interval", ShapeLimits::layers, interval));
  const Json* rotated = fields.find("no_rope_layers");
  const auto known = [](const Json& flag) { return flag == 0 || flag == 1; };
  if (rotated != nullptr &&
      (!rotated->is_array() || std::cmp_not_equal(rotated->size(), shape.layers) ||
       !std::ranges::all_of(*rotated, known)))
    return fields.wrong("no_rope_layers",
                        fmt::format("0 or 1 for each of {} layers", shape.layers));
  for (std::int64_t layer = 0; layer < shape.layers; ++layer)
    if (rotated != nullptr ? (*rotated)[static_cast<std::size_t>(layer)] == 0
                           : (layer + 1) % interval == 0)
      shape.nope_layers.push_back(layer);
  return {};
}

/// Granite's four factors; 1 is none. Attention logits are multiplied by one of them instead of
/// being divided by head_dim's root.
Result<void> read_multipliers(const HfFields& fields, const HfFamily& family, ModelShape& shape) {
  if (!family.has_multipliers) return {};
  Rational logits{1, 1};
  Rational attention{1, 1};
  MFSDP_TRY(fields.number("embedding_multiplier", shape.embedding_multiplier));
  MFSDP_TRY(fields.number("residual_multiplier", shape.residual_multiplier));
  MFSDP_TRY(fields.number("logits_scaling", logits));
  MFSDP_TRY(fields.number("attention_multiplier", attention));
  shape.logit_multiplier = {logits.den, logits.num};
  for (Rational* const factor :
       {&shape.embedding_multiplier, &shape.residual_multiplier, &shape.logit_multiplier})
    if (*factor == Rational{1, 1}) *factor = {0, 1};
  // Nine digits are more than logits have.
  const double scalar = 1 / (attention.value() * attention.value());
  const Result<Rational> exact = parse_rational(fmt::format("{:.9f}", scalar), "scalar");
  if (!exact || exact->num <= 0)
    return fields.wrong("attention_multiplier", "a number above 0, at most 1000");
  shape.query_scalar = *exact == Rational{shape.head_dim, 1} ? Rational{0, 1} : *exact;
  return {};
}

/// Norms of queries and keys are those of the class.
Result<void> check_norms(const HfFields& fields, const HfFamily& family) {
  if (!family.qk_norm) return {};
  const Json* used = fields.find("use_qk_norm");
  if (used != nullptr && *used != true) return fields.wrong("use_qk_norm", "true");
  const char* const type = traits_of(family.family).whole_qk_norms ? "per_layer" : "per_head";
  const Json* stated = fields.find("qk_norm_type");
  if (stated != nullptr && *stated != type)
    return fields.wrong("qk_norm_type", fmt::format("\"{}\"", type));
  return {};
}

}  // namespace

Result<void> read_hf_variants(const HfFields& fields, const HfFamily& family, ModelShape& shape) {
  MFSDP_TRY(check_norms(fields, family));
  MFSDP_TRY(read_nope_layers(fields, family, shape));
  return read_multipliers(fields, family, shape);
}

}  // namespace mfsdp
