#include "core/model/hf_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/model/family.hpp"
#include "core/model/model_shape.hpp"
#include "core/model/not_modelled.hpp"

namespace mfsdp {
namespace {

using ParsedJson = nlohmann::json;

/// The fields of one JSON object. Null counts as absent, as in Hugging Face's files. Readers leave
/// `value` as it is when the field is absent, and name "file: field" in errors.
class Fields {
 public:
  Fields(const ParsedJson& object, const std::string& where, std::string prefix = {})
      : object_(object), where_(where), prefix_(std::move(prefix)) {}

  [[nodiscard]] const ParsedJson* find(const char* name) const {
    const auto at = object_.find(name);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }

  [[nodiscard]] tl::unexpected<Error> wrong(std::string_view name,
                                            std::string_view expected) const {
    const auto at = object_.find(name);
    return fail(where_, fmt::format("{}{}: expected {}, got {}", prefix_, name, expected,
                                    at == object_.end() ? "nothing" : json_excerpt(*at)));
  }

  [[nodiscard]] Result<void> integer(const char* name, std::int64_t most,
                                     std::int64_t& value) const {
    return integer_between(1, most, name, value);
  }

  [[nodiscard]] Result<void> integer_between(std::int64_t least, std::int64_t most,
                                             const char* name, std::int64_t& value) const {
    const ParsedJson* field = find(name);
    if (field == nullptr) return {};
    const auto out_of_range = [&] {
      return wrong(name, fmt::format("an integer from {} to {}", least, most));
    };
    if (!field->is_number_integer()) return out_of_range();
    // Above 2^63 only the unsigned reading is right; a negative one is not unsigned.
    if (field->is_number_unsigned() ? field->get<std::uint64_t>() > static_cast<std::uint64_t>(most)
                                    : field->get<std::int64_t>() > most)
      return out_of_range();
    if (field->get<std::int64_t>() < least) return out_of_range();
    value = field->get<std::int64_t>();
    return {};
  }

  [[nodiscard]] Result<void> required_integer(const char* name, std::int64_t most,
                                              std::int64_t& value) const {
    if (find(name) == nullptr) return wrong(name, fmt::format("an integer from 1 to {}", most));
    return integer(name, most, value);
  }

  /// A positive number, exactly as its decimal digits say.
  [[nodiscard]] Result<void> number(const char* name, Rational& value) const {
    const ParsedJson* field = find(name);
    if (field == nullptr) return {};
    constexpr std::string_view kExpected = "a positive number of at most 18 digits";
    if (!field->is_number()) return wrong(name, kExpected);
    const Result<Rational> exact = field->is_number_float()
                                       ? rational_from_double(field->get<double>(), name)
                                       : parse_rational(field->dump(), name);
    if (!exact || exact->num <= 0) return wrong(name, kExpected);
    value = *exact;
    return {};
  }

  [[nodiscard]] Result<void> required_number(const char* name, Rational& value) const {
    if (find(name) == nullptr) return wrong(name, "a number");
    return number(name, value);
  }

  [[nodiscard]] Result<void> boolean(const char* name, bool& value) const {
    const ParsedJson* field = find(name);
    if (field == nullptr) return {};
    if (!field->is_boolean()) return wrong(name, "true or false");
    value = field->get<bool>();
    return {};
  }

  /// An error unless the field is absent or false.
  [[nodiscard]] Result<void> off(const char* name, std::string_view what) const {
    bool on = false;
    MFSDP_TRY(boolean(name, on));
    if (on) return wrong(name, fmt::format("false ({} are not supported)", what));
    return {};
  }

  /// The object under `name`, if there is one.
  [[nodiscard]] Result<std::optional<Fields>> object(const char* name) const {
    const ParsedJson* field = find(name);
    if (field == nullptr) return std::optional<Fields>{};
    if (!field->is_object()) return wrong(name, "an object or null");
    return std::optional<Fields>(std::in_place, *field, where_, prefix_ + name + ".");
  }

  [[nodiscard]] const ParsedJson& raw() const { return object_; }

 private:
  const ParsedJson& object_;
  const std::string& where_;
  std::string prefix_;
};

Result<HfFamily> read_family(const Fields& fields) {
  const auto unknown = fields.wrong("model_type", hf_family_list());
  const ParsedJson* field = fields.find("model_type");
  if (field == nullptr || !field->is_string()) return unknown;
  const auto& type = field->get_ref<const std::string&>();
  const auto family = std::ranges::find(hf_families(), type, &HfFamily::model_type);
  if (family != hf_families().end()) return *family;
  const auto what = what_is_not_modelled(type);
  if (!what) return unknown;
  return fail(unknown.value().where, fmt::format("{}, which has {}: not modelled (docs/limits.md)",
                                                 unknown.value().what, *what));
}

/// A field that has to be off: absent, null, false, 0 or empty. `one_is_off`: 1 is off too.
struct Switch {
  const char* name;
  std::string_view what;
  bool one_is_off = false;
};

constexpr std::string_view kFieldDropout = "dropout";
constexpr std::string_view kFieldExperts = "a mixture of experts";
constexpr std::string_view kFieldScales = "scaled activations";
constexpr std::string_view kFieldSoftCaps = "soft caps of scores or logits";
constexpr std::string_view kFieldNorms = "norms of queries and keys";

constexpr std::array kSwitches{
    Switch{.name = "attention_dropout", .what = kFieldDropout},
    Switch{.name = "hidden_dropout", .what = kFieldDropout},
    Switch{.name = "resid_pdrop", .what = kFieldDropout},
    Switch{.name = "embd_pdrop", .what = kFieldDropout},
    Switch{.name = "residual_dropout", .what = kFieldDropout},
    Switch{.name = "num_local_experts", .what = kFieldExperts, .one_is_off = true},
    Switch{.name = "num_experts", .what = kFieldExperts, .one_is_off = true},
    Switch{.name = "n_routed_experts", .what = kFieldExperts, .one_is_off = true},
    Switch{.name = "moe_num_experts", .what = kFieldExperts, .one_is_off = true},
    Switch{.name = "kv_lora_rank", .what = "multi-head latent attention"},
    Switch{.name = "num_nextn_predict_layers", .what = "multi-token prediction"},
    Switch{.name = "attention_chunk_size", .what = "chunked attention"},
    Switch{.name = "cross_attention_layers", .what = "cross-attention"},
    Switch{.name = "no_rope_layers", .what = "layers without RoPE"},
    Switch{.name = "num_kv_shared_layers", .what = "keys and values that layers share"},
    Switch{.name = "use_parallel_residual", .what = "parallel residuals"},
    Switch{.name = "use_mrope", .what = "multimodal RoPE"},
    Switch{.name = "is_encoder_decoder", .what = "an encoder"},
    Switch{.name = "vision_config", .what = "an image encoder"},
    Switch{.name = "attn_logit_softcapping", .what = kFieldSoftCaps},
    Switch{.name = "final_logit_softcapping", .what = kFieldSoftCaps},
    Switch{.name = "residual_multiplier", .what = kFieldScales, .one_is_off = true},
    Switch{.name = "embedding_multiplier", .what = kFieldScales, .one_is_off = true},
    Switch{.name = "logits_scaling", .what = kFieldScales, .one_is_off = true},
    Switch{.name = "logit_scale", .what = kFieldScales, .one_is_off = true},
};

/// Norms of queries and keys under other names than the model_type's own.
constexpr std::array kNormSwitches{"qk_norm", "use_qk_norm", "qk_layernorm"};

bool is_off(const ParsedJson& value, bool one_is_off) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value == 0 || (one_is_off && value == 1);
  return value.is_null() || ((value.is_array() || value.is_object()) && value.empty());
}

Result<void> check_switches(const Fields& fields, const HfFamily& family) {
  const auto check = [&](const char* name, std::string_view what, bool one_is_off) -> Result<void> {
    const ParsedJson* value = fields.find(name);
    if (value == nullptr || is_off(*value, one_is_off)) return {};
    return fields.wrong(name, fmt::format("none (not modelled: {}; docs/limits.md)", what));
  };
  for (const Switch& field : kSwitches) MFSDP_TRY(check(field.name, field.what, field.one_is_off));
  if (!family.qk_norm)
    for (const char* name : kNormSwitches) MFSDP_TRY(check(name, kFieldNorms, false));
  if (const ParsedJson* causal = fields.find("is_causal"); causal != nullptr && *causal == false)
    return fields.wrong("is_causal", "true (attention to later tokens is not modelled)");
  return {};
}

/// Classifiers and the like have another head; a base model is trained as a language model.
Result<void> check_head(const Fields& fields) {
  const ParsedJson* classes = fields.find("architectures");
  if (classes == nullptr || !classes->is_array()) return {};
  for (const ParsedJson& name : *classes) {
    if (!name.is_string()) continue;
    const auto& text = name.get_ref<const std::string&>();
    const std::size_t task = text.find("For");
    if (task != std::string::npos && text.substr(task) != "ForCausalLM")
      return fields.wrong("architectures", "a class ...ForCausalLM (other heads are not modelled)");
  }
  return {};
}

/// Fields that would change what runs in ways that the recipe does not know.
Result<void> refuse_unsupported(const Fields& fields, const HfFamily& family) {
  if (fields.find("quantization_config") != nullptr)
    return fields.wrong("quantization_config",
                        "none (quantized checkpoints are not supported; name the unquantized one)");
  if (const ParsedJson* act = fields.find("hidden_act"); act != nullptr && *act != "silu")
    return fields.wrong("hidden_act", "\"silu\"");
  // Qwen2 has its bias whatever this field says; the other three have none.
  if (!family.qkv_bias) MFSDP_TRY(fields.off("attention_bias", "attention biases"));
  MFSDP_TRY(fields.off("mlp_bias", "biases in the MLP"));
  if (const ParsedJson* part = fields.find("partial_rotary_factor");
      part != nullptr && *part != 1.0)
    return fields.wrong("partial_rotary_factor", "1 (RoPE turns whole heads)");
  MFSDP_TRY(check_head(fields));
  return check_switches(fields, family);
}

Result<void> read_sizes(const Fields& fields, const HfFamily& family, ModelShape& shape) {
  MFSDP_TRY(fields.required_integer("hidden_size", ShapeLimits::dim, shape.hidden));
  MFSDP_TRY(fields.required_integer("intermediate_size", ShapeLimits::dim, shape.intermediate));
  MFSDP_TRY(fields.required_integer("num_hidden_layers", ShapeLimits::layers, shape.layers));
  MFSDP_TRY(fields.required_integer("num_attention_heads", ShapeLimits::heads, shape.heads));
  shape.kv_heads = shape.heads;
  const bool stated = fields.raw().contains("num_key_value_heads");
  if (!stated && !family.kv_heads_default_to_heads)
    return fields.wrong("num_key_value_heads", fmt::format("an integer from 1 to {}", shape.heads));
  MFSDP_TRY(fields.integer("num_key_value_heads", shape.heads, shape.kv_heads));
  if (fields.find("head_dim") == nullptr) {
    if (family.head_dim == 0 && shape.hidden % shape.heads != 0)
      return fields.wrong("head_dim",
                          fmt::format("an even integer, as hidden_size ({}) is not a multiple of "
                                      "num_attention_heads ({})",
                                      shape.hidden, shape.heads));
    shape.head_dim = family.head_dim != 0 ? family.head_dim : shape.hidden / shape.heads;
  }
  MFSDP_TRY(fields.integer("head_dim", ShapeLimits::heads, shape.head_dim));
  MFSDP_TRY(fields.required_integer("vocab_size", ShapeLimits::dim, shape.vocab));
  MFSDP_TRY(
      fields.required_integer("max_position_embeddings", ShapeLimits::dim, shape.max_seq_len));
  MFSDP_TRY(fields.required_number("rms_norm_eps", shape.rms_norm_eps));
  return fields.boolean("tie_word_embeddings", shape.tied_embeddings);
}

/// Scaled RoPE, or a scaling whose table nothing here makes.
struct ReadScaling {
  RopeScaling scaling;
  std::string other_type;  ///< empty: none

  friend bool operator==(const ReadScaling&, const ReadScaling&) = default;
};

constexpr std::array<std::string_view, 5> kOtherScalings{"yarn", "linear", "dynamic", "longrope",
                                                         "su"};

Result<ReadScaling> read_scaling(const Fields& rope, bool type_required) {
  // "type" is the older name of "rope_type".
  const char* key =
      rope.find("rope_type") == nullptr && rope.find("type") != nullptr ? "type" : "rope_type";
  const ParsedJson* type = rope.find(key);
  ReadScaling read;
  if (type == nullptr && !type_required) return read;
  if (type != nullptr && *type == "default") return read;
  if (type != nullptr && type->is_string() &&
      std::ranges::find(kOtherScalings, type->get_ref<const std::string&>()) !=
          kOtherScalings.end()) {
    read.other_type = type->get<std::string>();
    return read;
  }
  if (type == nullptr || *type != "llama3")
    return rope.wrong(key,
                      "\"llama3\", \"default\", \"yarn\", \"linear\", \"dynamic\" or "
                      "\"longrope\"");
  RopeScaling& scaling = read.scaling;
  MFSDP_TRY(rope.required_number("factor", scaling.factor));
  MFSDP_TRY(rope.required_number("low_freq_factor", scaling.low_freq_factor));
  MFSDP_TRY(rope.required_number("high_freq_factor", scaling.high_freq_factor));
  MFSDP_TRY(rope.required_integer("original_max_position_embeddings", ShapeLimits::dim,
                                  scaling.original_max_seq_len));
  // Factor 1 changes no frequency; as "none" it gives the same plan and hash.
  if (scaling.factor == Rational{1, 1} && scaling.high_freq_factor.value() > 1.0)
    scaling = RopeScaling{};
  return read;
}

/// rope_theta and rope_scaling, or the rope_parameters that replaced both in transformers 5.
Result<void> read_rope(const Fields& fields, HfModel& model) {
  ModelShape& shape = model.shape;
  MFSDP_TRY(fields.number("rope_theta", shape.rope_theta));
  MFSDP_LET(old_form, fields.object("rope_scaling"));
  MFSDP_LET(new_form, fields.object("rope_parameters"));
  ReadScaling scaling;
  if (old_form) {
    MFSDP_LET(read, read_scaling(*old_form, true));
    scaling = read;
  }
  if (new_form) {
    for (const auto& [key, value] : new_form->raw().items())
      if (value.is_object())
        return fields.wrong("rope_parameters", "one set of parameters for all layers");
    const Rational theta_before = shape.rope_theta;
    MFSDP_TRY(new_form->number("rope_theta", shape.rope_theta));
    if (fields.find("rope_theta") != nullptr && shape.rope_theta != theta_before)
      return new_form->wrong(
          "rope_theta", fmt::format("the value of rope_theta outside ({})", theta_before.value()));
    if (const ParsedJson* part = new_form->find("partial_rotary_factor");
        part != nullptr && *part != 1.0)
      return new_form->wrong("partial_rotary_factor", "1 (RoPE turns whole heads)");
    MFSDP_LET(read, read_scaling(*new_form, false));
    if (old_form && read != scaling)
      return fields.wrong("rope_parameters", "the same scaling as in rope_scaling");
    scaling = read;
  }
  shape.rope_scaling = scaling.scaling;
  model.gaps.rope_type = scaling.other_type;
  return {};
}

/// The layers that layer_types has slide; none where the field is absent.
Result<std::optional<std::int64_t>> named_sliding_layers(const Fields& fields) {
  const ParsedJson* types = fields.find("layer_types");
  if (types == nullptr) return std::optional<std::int64_t>{};
  const auto known = [](const ParsedJson& type) {
    return type == "full_attention" || type == "sliding_attention";
  };
  if (!types->is_array() || !std::ranges::all_of(*types, known))
    return fields.wrong("layer_types",
                        "\"full_attention\" or \"sliding_attention\" for every layer");
  return std::optional<std::int64_t>(std::ranges::count(*types, ParsedJson("sliding_attention")));
}

/// Layers slide that layer_types names; else all of Mistral's, and of Qwen's those from
/// max_window_layers on. A window as long as the longest sequence never cuts anything off.
Result<void> read_window(const Fields& fields, const HfFamily& family, HfModel& model) {
  MFSDP_LET(named, named_sliding_layers(fields));
  bool slides = family.slides || named.value_or(0) > 0;
  MFSDP_TRY(fields.boolean("use_sliding_window", slides));
  std::int64_t full = 0;
  if (!family.slides)
    MFSDP_TRY(fields.integer_between(0, ShapeLimits::layers, "max_window_layers", full));
  const std::int64_t layers = named.value_or(model.shape.layers - full);
  const bool stated = fields.raw().contains("sliding_window");
  std::int64_t window = stated ? model.shape.max_seq_len : family.sliding_window;
  MFSDP_TRY(fields.integer("sliding_window", ShapeLimits::dim, window));
  if (!slides || layers <= 0 || window >= model.shape.max_seq_len) return {};
  model.gaps.sliding_window = window;
  model.gaps.sliding_layers = std::min(layers, model.shape.layers);
  return {};
}

}  // namespace

Result<HfModel> read_hf_config(std::string_view text, const std::string& where) {
  MFSDP_LET(document, parse_json(text, where));
  if (!document.is_object())
    return fail(where, fmt::format("expected a JSON object, got {}", json_excerpt(document)));
  const Fields fields(document, where);
  MFSDP_LET(family, read_family(fields));
  MFSDP_TRY(refuse_unsupported(fields, family));
  HfModel model;
  model.shape.family = family.family;
  model.shape.qkv_bias = family.qkv_bias;
  model.shape.qk_norm = family.qk_norm;
  MFSDP_TRY(read_sizes(fields, family, model.shape));
  MFSDP_TRY(read_rope(fields, model));
  MFSDP_TRY(read_window(fields, family, model));
  MFSDP_TRY(check_shape(model.shape, where));
  return model;
}

Result<ModelShape> parse_hf_config(std::string_view text, const std::string& where) {
  MFSDP_LET(model, read_hf_config(text, where));
  const std::vector<std::string> gaps = gap_lines(model.gaps, model.shape, model.shape.max_seq_len);
  if (!gaps.empty()) return fail(where, gaps.front());
  return model.shape;
}

}  // namespace mfsdp
