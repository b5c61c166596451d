#include "core/model/hf_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/model/model_shape.hpp"

namespace mfsdp {
namespace {

using nlohmann::json;

/// What Hugging Face's classes fix or assume for a model_type.
struct Family {
  std::string_view model_type;
  bool qkv_bias = false;
  bool qk_norm = false;
  /// Where config.json has no head_dim; 0 means hidden_size / num_attention_heads.
  std::int64_t head_dim = 0;
  /// An absent num_key_value_heads means num_attention_heads. Elsewhere it means a constant that
  /// fits one model of the family, so there it has to be stated.
  bool kv_heads_default_to_heads = false;
  /// Attention slides over this many tokens when config.json does not say; 0 means it does not.
  std::int64_t sliding_window = 0;
};

constexpr std::array kFamilies{
    Family{.model_type = "llama", .kv_heads_default_to_heads = true},
    Family{.model_type = "mistral", .sliding_window = 4096},
    Family{.model_type = "qwen2", .qkv_bias = true},
    Family{.model_type = "qwen3", .qk_norm = true, .head_dim = 128},
};
constexpr std::string_view kModelTypes = "llama, mistral, qwen2 or qwen3";

/// The fields of one JSON object. Null counts as absent, as in Hugging Face's files. Readers leave
/// `value` as it is when the field is absent, and name "file: field" in errors.
class Fields {
 public:
  Fields(const json& object, const std::string& where, std::string prefix = {})
      : object_(object), where_(where), prefix_(std::move(prefix)) {}

  [[nodiscard]] const json* find(const char* name) const {
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
    const json* field = find(name);
    if (field == nullptr) return {};
    const auto out_of_range = [&] {
      return wrong(name, fmt::format("an integer from 1 to {}", most));
    };
    if (!field->is_number_integer()) return out_of_range();
    // Above 2^63 only the unsigned reading is right; a negative one is not unsigned.
    if (field->is_number_unsigned() ? field->get<std::uint64_t>() > static_cast<std::uint64_t>(most)
                                    : field->get<std::int64_t>() > most)
      return out_of_range();
    if (field->get<std::int64_t>() < 1) return out_of_range();
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
    const json* field = find(name);
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
    const json* field = find(name);
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
    const json* field = find(name);
    if (field == nullptr) return std::optional<Fields>{};
    if (!field->is_object()) return wrong(name, "an object or null");
    return std::optional<Fields>(std::in_place, *field, where_, prefix_ + name + ".");
  }

  [[nodiscard]] const json& raw() const { return object_; }

 private:
  const json& object_;
  const std::string& where_;
  std::string prefix_;
};

Result<Family> read_family(const Fields& fields) {
  if (const json* type = fields.find("model_type"); type != nullptr && type->is_string())
    for (const Family& family : kFamilies)
      if (family.model_type == type->get_ref<const std::string&>()) return family;
  return fields.wrong("model_type", kModelTypes);
}

/// Fields that would change what runs in ways that the recipe does not know.
Result<void> refuse_unsupported(const Fields& fields, const Family& family) {
  if (fields.find("quantization_config") != nullptr)
    return fields.wrong("quantization_config",
                        "none (quantized checkpoints are not supported; name the unquantized one)");
  if (const json* act = fields.find("hidden_act"); act != nullptr && *act != "silu")
    return fields.wrong("hidden_act", "\"silu\"");
  // Qwen2 has its bias whatever this field says; the other three have none.
  if (!family.qkv_bias) MFSDP_TRY(fields.off("attention_bias", "attention biases"));
  MFSDP_TRY(fields.off("mlp_bias", "biases in the MLP"));
  if (const json* part = fields.find("partial_rotary_factor"); part != nullptr && *part != 1.0)
    return fields.wrong("partial_rotary_factor", "1 (RoPE turns whole heads)");
  return {};
}

Result<void> read_sizes(const Fields& fields, const Family& family, ModelShape& shape) {
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

Result<RopeScaling> read_scaling(const Fields& rope, bool type_required) {
  // "type" is the older name of "rope_type".
  const char* key =
      rope.find("rope_type") == nullptr && rope.find("type") != nullptr ? "type" : "rope_type";
  const json* type = rope.find(key);
  RopeScaling scaling;
  if (type == nullptr && !type_required) return scaling;
  if (type != nullptr && *type == "default") return scaling;
  if (type == nullptr || *type != "llama3") return rope.wrong(key, "\"llama3\" or \"default\"");
  MFSDP_TRY(rope.required_number("factor", scaling.factor));
  MFSDP_TRY(rope.required_number("low_freq_factor", scaling.low_freq_factor));
  MFSDP_TRY(rope.required_number("high_freq_factor", scaling.high_freq_factor));
  MFSDP_TRY(rope.required_integer("original_max_position_embeddings", ShapeLimits::dim,
                                  scaling.original_max_seq_len));
  // Factor 1 changes no frequency; as "none" it gives the same plan and hash.
  if (scaling.factor == Rational{1, 1} && scaling.high_freq_factor.value() > 1.0)
    scaling = RopeScaling{};
  return scaling;
}

/// rope_theta and rope_scaling, or the rope_parameters that replaced both in transformers 5.
Result<void> read_rope(const Fields& fields, ModelShape& shape) {
  MFSDP_TRY(fields.number("rope_theta", shape.rope_theta));
  MFSDP_LET(old_form, fields.object("rope_scaling"));
  MFSDP_LET(new_form, fields.object("rope_parameters"));
  if (old_form) {
    MFSDP_LET(scaling, read_scaling(*old_form, true));
    shape.rope_scaling = scaling;
  }
  if (!new_form) return {};
  for (const auto& [key, value] : new_form->raw().items())
    if (value.is_object())
      return fields.wrong("rope_parameters", "one set of parameters for all layers");
  const Rational theta_before = shape.rope_theta;
  MFSDP_TRY(new_form->number("rope_theta", shape.rope_theta));
  if (fields.find("rope_theta") != nullptr && shape.rope_theta != theta_before)
    return new_form->wrong(
        "rope_theta", fmt::format("the value of rope_theta outside ({})", theta_before.value()));
  if (const json* part = new_form->find("partial_rotary_factor"); part != nullptr && *part != 1.0)
    return new_form->wrong("partial_rotary_factor", "1 (RoPE turns whole heads)");
  MFSDP_LET(scaling, read_scaling(*new_form, false));
  if (old_form && scaling != shape.rope_scaling)
    return fields.wrong("rope_parameters", "the same scaling as in rope_scaling");
  shape.rope_scaling = scaling;
  return {};
}

/// Full attention only: a window is fine where it never cuts anything off.
Result<void> check_window(const Fields& fields, const Family& family, const ModelShape& shape) {
  bool slides = family.sliding_window != 0;
  MFSDP_TRY(fields.boolean("use_sliding_window", slides));
  if (slides) {
    const bool stated = fields.raw().contains("sliding_window");
    std::int64_t window = stated ? shape.max_seq_len : family.sliding_window;
    MFSDP_TRY(fields.integer("sliding_window", ShapeLimits::dim, window));
    if (window < shape.max_seq_len)
      return fields.wrong(
          "sliding_window",
          fmt::format("null or at least max_position_embeddings ({}){}", shape.max_seq_len,
                      stated ? "" : fmt::format(", as absent means {}", window)));
  }
  const json* types = fields.find("layer_types");
  if (types == nullptr) return {};
  const bool full = types->is_array() && std::ranges::all_of(*types, [](const json& type) {
                      return type == "full_attention";
                    });
  if (!full) return fields.wrong("layer_types", "\"full_attention\" for every layer");
  return {};
}

}  // namespace

Result<ModelShape> parse_hf_config(std::string_view text, const std::string& where) {
  MFSDP_LET(document, parse_json(text, where));
  if (!document.is_object())
    return fail(where, fmt::format("expected a JSON object, got {}", json_excerpt(document)));
  const Fields fields(document, where);
  MFSDP_LET(family, read_family(fields));
  MFSDP_TRY(refuse_unsupported(fields, family));
  ModelShape shape;
  shape.qkv_bias = family.qkv_bias;
  shape.qk_norm = family.qk_norm;
  MFSDP_TRY(read_sizes(fields, family, shape));
  MFSDP_TRY(read_rope(fields, shape));
  MFSDP_TRY(check_window(fields, family, shape));
  MFSDP_TRY(check_shape(shape, where));
  return shape;
}

}  // namespace mfsdp
