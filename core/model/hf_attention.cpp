#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/model/hf_parts.hpp"
#include "core/model/model_shape.hpp"

namespace mfsdp {
namespace {

using Json = HfFields::Json;

/// Scaled RoPE, or a scaling whose table is not computed here.
struct ReadScaling {
  RopeScaling scaling;
  std::string other_type;  ///< of a scaling that is not computed; empty: none
  std::string why;         ///< the field that makes it so, where the type is known

  friend bool operator==(const ReadScaling&, const ReadScaling&) = default;
};

Result<void> read_llama3(const HfFields& rope, RopeScaling& scaling) {
  MFSDP_TRY(rope.required_number("factor", scaling.factor));
  MFSDP_TRY(rope.required_number("low_freq_factor", scaling.low_freq_factor));
  MFSDP_TRY(rope.required_number("high_freq_factor", scaling.high_freq_factor));
  MFSDP_TRY(rope.required_integer("original_max_position_embeddings", ShapeLimits::dim,
                                  scaling.original_max_seq_len));
  // Factor 1 changes no frequency. Read as no scaling it gives the same plan and hash.
  if (scaling.factor == Rational{1, 1} && scaling.high_freq_factor.value() > 1.0)
    scaling = RopeScaling{};
  return {};
}

/// One of YaRN's magnitudes; 0 means none, as in Hugging Face's classes.
Result<Rational> read_magnitude(const HfFields& rope, const char* name) {
  Rational magnitude{0, 1};
  const Json* stated = rope.find(name);
  if (stated == nullptr || *stated == 0) return magnitude;
  MFSDP_TRY(rope.number(name, magnitude));
  return magnitude;
}

Result<void> read_yarn(const HfFields& rope, const ModelShape& shape, ReadScaling& read) {
  RopeScaling& scaling = read.scaling;
  MFSDP_LET(own, read_magnitude(rope, "mscale"));
  MFSDP_LET(all, read_magnitude(rope, "mscale_all_dim"));
  const bool both = own.num != 0 && all.num != 0;
  // The table for two different magnitudes is not computed here.
  if (both && own != all) {
    read.other_type = "yarn";
    rope.know_all();  // the gap reports them
    read.why =
        fmt::format("mscale ({}) differs from mscale_all_dim ({})", own.value(), all.value());
    return {};
  }
  scaling.kind = RopeKind::yarn;
  scaling.low_freq_factor = {1, 1};
  scaling.high_freq_factor = {32, 1};
  scaling.original_max_seq_len = shape.max_seq_len;
  MFSDP_TRY(rope.required_number("factor", scaling.factor));
  MFSDP_TRY(rope.number("beta_slow", scaling.low_freq_factor));
  MFSDP_TRY(rope.number("beta_fast", scaling.high_freq_factor));
  MFSDP_TRY(rope.number("attention_factor", scaling.attention_factor));
  bool rounds = true;
  MFSDP_TRY(rope.boolean("truncate", rounds));
  scaling.exact_range = !rounds;
  if (shape.kv_latent != 0) scaling.score_magnitude = all;
  // Two equal magnitudes mean no change: one is divided by the other.
  if (rope.find("attention_factor") == nullptr && both) scaling.attention_factor = {1, 1};
  return rope.integer("original_max_position_embeddings", ShapeLimits::dim,
                      scaling.original_max_seq_len);
}

Result<void> read_factors(const HfFields& rope, const char* name, std::vector<Rational>& factors) {
  constexpr std::string_view kExpected = "a list of positive numbers of at most 18 digits";
  const Json* list = rope.find(name);
  if (list == nullptr || !list->is_array()) return rope.wrong(name, kExpected);
  for (const Json& one : *list) {
    if (!one.is_number()) return rope.wrong(name, kExpected);
    const Result<Rational> exact = one.is_number_float()
                                       ? rational_from_double(one.get<double>(), name)
                                       : parse_rational(one.dump(), name);
    if (!exact || exact->num <= 0) return rope.wrong(name, kExpected);
    factors.push_back(*exact);
  }
  return {};
}

/// The original context is a field of the scaling, or of the config.
Result<void> read_longrope(const HfFields& fields, const HfFields& rope, const ModelShape& shape,
                           RopeScaling& scaling) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  scaling.kind = RopeKind::longrope;
  MFSDP_TRY(read_factors(rope, "short_factor", scaling.short_factors));
  MFSDP_TRY(read_factors(rope, "long_factor", scaling.long_factors));
  const HfFields& from = rope.find(kOriginal) != nullptr ? rope : fields;
  MFSDP_TRY(from.required_integer(kOriginal, ShapeLimits::dim, scaling.original_max_seq_len));
  MFSDP_SET(scaling.factor, make_rational(std::max(shape.max_seq_len, scaling.original_max_seq_len),
                                          scaling.original_max_seq_len));
  MFSDP_TRY(rope.number("factor", scaling.factor));
  return rope.number("attention_factor", scaling.attention_factor);
}

Result<ReadScaling> read_scaling(const HfFields& fields, const HfFields& rope,
                                 const HfFamily& family, const ModelShape& shape,
                                 bool type_required) {
  // "type" is the older name of "rope_type".
  const char* key =
      rope.find("rope_type") == nullptr && rope.find("type") != nullptr ? "type" : "rope_type";
  const Json* field = rope.find(key);
  rope.know({"type"});  // redundant with rope_type
  if (family.multimodal_rope) rope.know({"mrope_section", "mrope_interleaved"});
  ReadScaling read;
  if (field == nullptr && !type_required) return read;
  std::string type = field != nullptr && field->is_string() ? field->get<std::string>() : "";
  // Phi-3's first files have "su" or "yarn" for LongRoPE.
  if (type == "su" || (type == "yarn" && family.model_type == "phi3")) type = "longrope";
  if (type == "default" || (type == "mrope" && family.multimodal_rope)) return read;
  if (type == "dynamic") {
    read.other_type = type;
    rope.know_all();  // the gap reports them
  } else if (type == "llama3") {
    MFSDP_TRY(read_llama3(rope, read.scaling));
  } else if (type == "linear") {
    read.scaling.kind = RopeKind::linear;
    MFSDP_TRY(rope.required_number("factor", read.scaling.factor));
    if (read.scaling.factor == Rational{1, 1}) read.scaling = RopeScaling{};
  } else if (type == "yarn") {
    MFSDP_TRY(read_yarn(rope, shape, read));
  } else if (type == "longrope") {
    MFSDP_TRY(read_longrope(fields, rope, shape, read.scaling));
  } else {
    return rope.wrong(key,
                      "\"llama3\", \"default\", \"yarn\", \"linear\", \"dynamic\" or "
                      "\"longrope\"");
  }
  return read;
}

/// A part of a head, rounded down; 0: the whole head.
std::int64_t rotated_part(const ModelShape& shape, const Rational& factor) {
  const auto turned =
      static_cast<std::int64_t>(static_cast<double>(shape.head_dim) * factor.value());
  return turned == shape.head_dim ? 0 : turned;
}

/// The number of rotated elements of a head: as stated, or a factor of head_dim.
Result<void> read_rotary_part(const HfFields& fields, const HfFamily& family, ModelShape& shape) {
  const Json* part = fields.find("partial_rotary_factor");
  if (part != nullptr && (family.partial_rope || *part != 1.0)) {
    if (!family.partial_rope)
      return fields.wrong("partial_rotary_factor", "1 (RoPE rotates whole heads)");
    Rational factor;
    MFSDP_TRY(fields.number("partial_rotary_factor", factor));
    if (factor.value() > 1) return fields.wrong("partial_rotary_factor", "a number of at most 1");
    shape.rotary_dim = rotated_part(shape, factor);
    if (shape.rotary_dim == 1 || factor.value() * static_cast<double>(shape.head_dim) < 1)
      return fields.wrong("partial_rotary_factor", "at least two rotated elements");
  }
  if (!family.partial_rope || fields.find("rotary_dim") == nullptr) return {};
  std::int64_t elements = 0;
  MFSDP_TRY(fields.integer("rotary_dim", shape.head_dim, elements));
  if (part != nullptr && elements != shape.rotated_dim())
    return fields.wrong("rotary_dim",
                        fmt::format("{}, as partial_rotary_factor has it", shape.rotated_dim()));
  shape.rotary_dim = elements == shape.head_dim ? 0 : elements;
  return {};
}

/// rope_theta and the scaling inside an object that replaced the two fields in transformers 5.
Result<void> read_new_rope(const HfFields& fields, const HfFields& rope, const HfFamily& family,
                           ModelShape& shape, ReadScaling& scaling) {
  const Rational theta_before = shape.rope_theta;
  const bool old_form = fields.find("rope_scaling") != nullptr;
  MFSDP_TRY(rope.number("rope_theta", shape.rope_theta));
  if (fields.find("rope_theta") != nullptr && shape.rope_theta != theta_before)
    return rope.wrong("rope_theta",
                      fmt::format("the value of rope_theta outside ({})", theta_before.value()));
  MFSDP_TRY(read_rotary_part(rope, family, shape));
  MFSDP_LET(read, read_scaling(fields, rope, family, shape, false));
  if (old_form && read != scaling)
    return fields.wrong("rope_parameters", "the same scaling as in rope_scaling");
  scaling = read;
  return {};
}

/// One set of parameters for sliding-window layers and one for the others, as in Gemma 3.
Result<void> read_rope_by_layer(const HfFields& fields, const HfFields& rope,
                                const HfFamily& family, ModelShape& shape, ReadScaling& scaling) {
  MFSDP_LET(full, rope.object("full_attention"));
  MFSDP_LET(sliding, rope.object("sliding_attention"));
  if (!full || !sliding || rope.raw().size() != 2)
    return fields.wrong("rope_parameters", "those of full_attention and of sliding_attention");
  MFSDP_TRY(read_new_rope(fields, *full, family, shape, scaling));
  MFSDP_TRY(sliding->number("rope_theta", shape.local_rope_theta));
  MFSDP_LET(local, read_scaling(fields, *sliding, family, shape, false));
  if (local != ReadScaling{})
    return sliding->wrong("rope_type", "\"default\" (RoPE of sliding-window layers is not scaled)");
  return {};
}

/// Latent attention multiplies its logits by the square of YaRN's magnitude, not its cosines and
/// sines. query_scalar, by whose root logits are divided, includes it.
Result<void> read_score_magnitude(const HfFields& rope, ModelShape& shape) {
  const RopeScaling& scaling = shape.rope_scaling;
  if (scaling.score_magnitude.num == 0) return {};
  const double magnitude =
      0.1 * scaling.score_magnitude.value() * std::log(scaling.factor.value()) + 1;
  const double scalar = static_cast<double>(shape.head_dim) / std::pow(magnitude, 4);
  // Nine digits are more than logits have. A magnitude far above 1 would leave none.
  const Result<Rational> exact = parse_rational(fmt::format("{:.9f}", scalar), "mscale_all_dim");
  if (!exact || exact->num <= 0) return rope.wrong("mscale_all_dim", "a number near 1");
  shape.query_scalar = *exact;
  return {};
}

/// rope_theta and rope_scaling, or the rope_parameters that replaced both in transformers 5.
Result<void> read_rope(const HfFields& fields, const HfFamily& family, HfModel& model) {
  ModelShape& shape = model.shape;
  fields.know({"original_max_position_embeddings"});  // has no effect without a scaling
  if (family.rope_theta != 0) shape.rope_theta = {family.rope_theta, 1};
  shape.local_rope_theta = {family.local_rope_theta, 1};
  MFSDP_TRY(fields.number("rope_theta", shape.rope_theta));
  if (family.local_rope_theta != 0)
    MFSDP_TRY(fields.number("rope_local_base_freq", shape.local_rope_theta));
  if (family.partial_rope) shape.rotary_dim = rotated_part(shape, family.rotary_part);
  MFSDP_TRY(read_rotary_part(fields, family, shape));
  MFSDP_LET(old_form, fields.object("rope_scaling"));
  MFSDP_LET(new_form, fields.object("rope_parameters"));
  ReadScaling scaling;
  if (old_form) MFSDP_SET(scaling, read_scaling(fields, *old_form, family, shape, true));
  if (new_form) {
    const bool by_layer =
        std::ranges::any_of(new_form->raw(), [](const Json& value) { return value.is_object(); });
    if (by_layer && family.local_rope_theta == 0)
      return fields.wrong("rope_parameters", "one set of parameters for all layers");
    if (by_layer)
      MFSDP_TRY(read_rope_by_layer(fields, *new_form, family, shape, scaling));
    else
      MFSDP_TRY(read_new_rope(fields, *new_form, family, shape, scaling));
  }
  shape.rope_scaling = scaling.scaling;
  if (family.unscaled_local_rope && shape.rope_scaling != RopeScaling{})
    shape.local_rope_theta = shape.rope_theta;
  // Files with both forms must agree.
  if (old_form || new_form)
    MFSDP_TRY(read_score_magnitude(old_form ? *old_form : *new_form, shape));
  model.gaps = {.rope_type = scaling.other_type, .rope_why = scaling.why};
  return {};
}

/// The sliding-window layers by layer_types; none where the field is absent.
Result<std::optional<std::vector<std::int64_t>>> named_sliding_layers(const HfFields& fields,
                                                                      std::int64_t layers) {
  std::optional<std::vector<std::int64_t>> sliding;
  const Json* types = fields.find("layer_types");
  if (types == nullptr) return sliding;
  const bool has_indexer = fields.find("index_topk") != nullptr;  // planned as the whole sequence
  const auto known = [&](const Json& type) {
    return type == "full_attention" || type == "sliding_attention" ||
           (has_indexer && type == "deepseek_sparse_attention");
  };
  if (!types->is_array() || !std::ranges::all_of(*types, known))
    return fields.wrong("layer_types",
                        "\"full_attention\" or \"sliding_attention\" for every layer");
  if (std::cmp_not_equal(types->size(), layers))
    return fields.wrong("layer_types", fmt::format("one for each of {} layers", layers));
  sliding.emplace();
  for (std::int64_t layer = 0; layer < layers; ++layer)
    if ((*types)[static_cast<std::size_t>(layer)] == "sliding_attention") sliding->push_back(layer);
  return sliding;
}

/// Selects sliding-window layers where there is no layer_types.
struct LayerRule {
  std::int64_t first = 0;    ///< the first layer with a window
  std::int64_t pattern = 0;  ///< every n-th layer has none; 0: all have one
  bool none = false;

  [[nodiscard]] bool slides(std::int64_t layer) const {
    return !none && layer >= first && (pattern == 0 || (layer + 1) % pattern != 0);
  }
};

Result<LayerRule> read_layer_rule(const HfFields& fields, const HfFamily& family) {
  LayerRule rule;
  switch (family.sliding) {
    case SlidingRule::none: rule.none = true; break;
    case SlidingRule::all: break;
    case SlidingRule::switched: {
      bool on = false;
      MFSDP_TRY(fields.boolean("use_sliding_window", on));
      rule.none = !on;
      rule.first = family.max_window_layers;
      MFSDP_TRY(fields.integer_between(0, ShapeLimits::layers, "max_window_layers", rule.first));
      break;
    }
    case SlidingRule::pattern:
      rule.pattern = family.sliding_pattern;
      MFSDP_TRY(fields.integer("sliding_window_pattern", ShapeLimits::layers, rule.pattern));
      break;
  }
  return rule;
}

/// A window as long as the longest sequence has no effect.
Result<void> read_window(const HfFields& fields, const HfFamily& family, ModelShape& shape) {
  MFSDP_LET(named, named_sliding_layers(fields, shape.layers));
  MFSDP_LET(rule, read_layer_rule(fields, family));
  std::vector<std::int64_t> sliding;
  for (std::int64_t layer = 0; layer < shape.layers; ++layer)
    if (rule.slides(layer)) sliding.push_back(layer);
  const bool names_count = !rule.none && family.sliding != SlidingRule::all;
  if (named && names_count) sliding = *named;
  const bool stated = fields.contains("sliding_window");
  std::int64_t window = stated ? shape.max_seq_len : family.sliding_window;
  // The class of Qwen2-MoE in transformers writes 0 where use_sliding_window is off.
  const Json* number = fields.find("sliding_window");
  if (!rule.none || number == nullptr || *number != 0)
    MFSDP_TRY(fields.integer("sliding_window", ShapeLimits::dim, window));
  // A local theta distinguishes these layers even where their window covers all tokens.
  const bool cuts = window != 0 && window < shape.max_seq_len;
  if (sliding.empty() || (!cuts && shape.local_rope_theta.num == 0)) {
    shape.local_rope_theta = {0, 1};
    return {};
  }
  shape.sliding_window = window;
  shape.sliding_layers = std::move(sliding);
  return {};
}

/// Logit softcaps, and the scale of attention logits. In families without them the fields must be
/// absent or off.
Result<void> read_scores(const HfFields& fields, const HfFamily& family, ModelShape& shape) {
  struct Number {
    const char* name;
    std::int64_t otherwise;
    Rational& value;
  };
  for (const Number& number :
       {Number{"attn_logit_softcapping", family.score_cap, shape.score_cap},
        Number{"final_logit_softcapping", family.logit_cap, shape.logit_cap},
        Number{"query_pre_attn_scalar", family.query_scalar, shape.query_scalar}}) {
    const Json* field = fields.find(number.name);
    if (!family.scaled_scores) {
      const bool off = field == nullptr || *field == 0 || *field == false;
      if (!off && &number.value != &shape.query_scalar)
        return fields.wrong(number.name,
                            "none (not modelled: logit softcaps; docs/reference/limits.md)");
      continue;
    }
    // Null switches a softcap off; only an absent field means the family's default.
    if (!fields.contains(number.name)) number.value = {number.otherwise, 1};
    MFSDP_TRY(fields.number(number.name, number.value));
  }
  if (shape.query_scalar == Rational{shape.head_dim, 1}) shape.query_scalar = {0, 1};
  return {};
}

}  // namespace

Result<void> read_hf_attention(const HfFields& fields, const HfFamily& family, HfModel& model) {
  MFSDP_TRY(read_rope(fields, family, model));
  MFSDP_TRY(read_scores(fields, family, model.shape));
  return read_window(fields, family, model.shape);
}

}  // namespace mfsdp
