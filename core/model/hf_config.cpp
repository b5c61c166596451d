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
#include "core/model/hf_attention.hpp"
#include "core/model/hf_experts.hpp"
#include "core/model/hf_fields.hpp"
#include "core/model/model_shape.hpp"
#include "core/model/not_modelled.hpp"

namespace mfsdp {
namespace {

using ParsedJson = HfFields::Json;
using Fields = HfFields;

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
constexpr std::string_view kFieldExperts = "experts of this model_type";
constexpr std::string_view kFieldScales = "scaled activations";
constexpr std::string_view kFieldNorms = "norms of queries and keys";

constexpr std::array kSwitches{
    Switch{.name = "attention_dropout", .what = kFieldDropout},
    Switch{.name = "hidden_dropout", .what = kFieldDropout},
    Switch{.name = "resid_pdrop", .what = kFieldDropout},
    Switch{.name = "embd_pdrop", .what = kFieldDropout},
    Switch{.name = "attn_pdrop", .what = kFieldDropout},
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
    Switch{.name = "scale_attn_by_inverse_layer_idx", .what = "scores scaled by layer"},
    Switch{.name = "reorder_and_upcast_attn", .what = "attention in another order"},
    Switch{.name = "add_cross_attention", .what = "cross-attention"},
    Switch{.name = "use_mrope", .what = "multimodal RoPE"},
    Switch{.name = "is_encoder_decoder", .what = "an encoder"},
    Switch{.name = "vision_config", .what = "an image encoder"},
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

/// Fields that a family's own readers take. A third one says of parts that transformers leaves out
/// too: its class of DeepSeek-V3 drops the layers of multi-token prediction.
bool is_of_family(const HfFamily& family, std::string_view field) {
  for (const char* name : {family.names.experts, family.names.newer_experts})
    if (name != nullptr && name == field) return true;
  return traits_of(family.family).latent_attention &&
         (field == "kv_lora_rank" || field == "num_nextn_predict_layers");
}

Result<void> check_switches(const Fields& fields, const HfFamily& family) {
  const auto check = [&](const char* name, std::string_view what, bool one_is_off) -> Result<void> {
    const ParsedJson* value = fields.find(name);
    if (value == nullptr || is_off(*value, one_is_off)) return {};
    return fields.wrong(name, fmt::format("none (not modelled: {}; docs/limits.md)", what));
  };
  for (const Switch& field : kSwitches)
    if (!is_of_family(family, field.name))
      MFSDP_TRY(check(field.name, field.what, field.one_is_off));
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

/// Gemma's classes take GELU's tanh form whatever the older field says.
Result<void> check_activation(const Fields& fields, const HfFamily& family) {
  const bool gelu = family.activation == Activation::gelu_tanh;
  const char* const newer = family.names.newer_activation;
  const bool is_new = newer != nullptr && fields.find(newer) != nullptr;
  const char* name = is_new ? newer : family.names.activation;
  const ParsedJson* stated = fields.find(name);
  if (stated == nullptr) return {};
  if (!gelu) return *stated == "silu" ? Result<void>{} : fields.wrong(name, "\"silu\"");
  if (*stated == "gelu_pytorch_tanh" || (family.family == Family::gpt2 && *stated == "gelu_new") ||
      (*stated == "gelu" && newer != nullptr && !is_new))
    return {};
  return fields.wrong(name,
                      family.family == Family::gpt2 ? "\"gelu_new\"" : "\"gelu_pytorch_tanh\"");
}

/// What GPT-2's class has beside: scores are divided by the root of head_dim where this is on.
Result<void> check_scaled_attention(const Fields& fields) {
  const ParsedJson* scaled = fields.find("scale_attn_weights");
  if (scaled == nullptr || *scaled == true) return {};
  return fields.wrong("scale_attn_weights", "true (scores that are not scaled are not modelled)");
}

/// Fields that would change what runs in ways that the recipe does not know.
Result<void> refuse_unsupported(const Fields& fields, const HfFamily& family) {
  if (fields.find("quantization_config") != nullptr && !family.quantised_originals)
    return fields.wrong("quantization_config",
                        "none (quantized checkpoints are not supported; name the unquantized one)");
  MFSDP_TRY(check_activation(fields, family));
  MFSDP_TRY(check_scaled_attention(fields));
  // Qwen2 has its bias whatever this field says; the other three have none.
  if (!family.qkv_bias) MFSDP_TRY(fields.off("attention_bias", "attention biases"));
  const ParsedJson* bias = fields.find("attention_bias");
  if (traits_of(family.family).sinks && bias != nullptr && *bias != true)
    return fields.wrong("attention_bias", "true (this model_type without them is not modelled)");
  MFSDP_TRY(fields.off("mlp_bias", "biases in the MLP"));
  MFSDP_TRY(check_head(fields));
  return check_switches(fields, family);
}

/// Heads of latent attention: what turns stands behind the rest.
Result<void> read_latent_sizes(const Fields& fields, ModelShape& shape) {
  std::int64_t rest = 0;
  MFSDP_TRY(fields.required_integer("qk_nope_head_dim", ShapeLimits::heads, rest));
  MFSDP_TRY(fields.required_integer("qk_rope_head_dim", ShapeLimits::heads, shape.rotary_dim));
  MFSDP_TRY(fields.required_integer("v_head_dim", ShapeLimits::heads, shape.value_dim));
  MFSDP_TRY(fields.required_integer("kv_lora_rank", ShapeLimits::dim, shape.kv_latent));
  MFSDP_TRY(fields.stated("q_lora_rank", "a positive integer, or null (queries made at once)"));
  MFSDP_TRY(fields.integer("q_lora_rank", ShapeLimits::dim, shape.query_latent));
  if (shape.rotary_dim % 2 != 0)
    return fields.wrong("qk_rope_head_dim", "an even number (RoPE turns pairs)");
  if (rest % 2 != 0) return fields.wrong("qk_nope_head_dim", "an even number");
  if (shape.kv_heads != shape.heads)
    return fields.wrong("num_key_value_heads",
                        fmt::format("{}, as num_attention_heads", shape.heads));
  shape.head_dim = checked_add(rest, shape.rotary_dim);
  if (shape.head_dim > ShapeLimits::heads)
    return fields.wrong("qk_nope_head_dim", fmt::format("at most {} together with qk_rope_head_dim",
                                                        ShapeLimits::heads));
  if (shape.value_dim == shape.head_dim) shape.value_dim = 0;
  if (const ParsedJson* pairs = fields.find("rope_interleave"); pairs != nullptr && *pairs != true)
    return fields.wrong("rope_interleave", "true (RoPE of halves is not modelled here)");
  const ParsedJson* epsilon = fields.find("rms_norm_eps");
  if (epsilon != nullptr && *epsilon != 1e-6)
    return fields.wrong("rms_norm_eps", "1e-06 (which norms of latent vectors have in any case)");
  return {};
}

Result<void> read_sizes(const Fields& fields, const HfFamily& family, ModelShape& shape) {
  const HfNames& names = family.names;
  MFSDP_TRY(fields.required_integer(names.hidden, ShapeLimits::dim, shape.hidden));
  if (family.intermediate_times != 0) {
    shape.intermediate = checked_mul(family.intermediate_times, shape.hidden);
    MFSDP_TRY(fields.integer(names.intermediate, ShapeLimits::dim, shape.intermediate));
  } else {
    MFSDP_TRY(fields.required_integer(names.intermediate, ShapeLimits::dim, shape.intermediate));
  }
  MFSDP_TRY(fields.required_integer(names.layers, ShapeLimits::layers, shape.layers));
  MFSDP_TRY(fields.required_integer(names.heads, ShapeLimits::heads, shape.heads));
  shape.kv_heads = shape.heads;
  const bool stated = fields.raw().contains("num_key_value_heads");
  if (!stated && !family.kv_heads_default_to_heads)
    return fields.wrong("num_key_value_heads", fmt::format("an integer from 1 to {}", shape.heads));
  MFSDP_TRY(fields.integer("num_key_value_heads", shape.heads, shape.kv_heads));
  if (traits_of(family.family).latent_attention) {
    MFSDP_TRY(read_latent_sizes(fields, shape));
  } else if (fields.find("head_dim") == nullptr) {
    if (family.head_dim == 0 && shape.hidden % shape.heads != 0)
      return fields.wrong("head_dim",
                          fmt::format("an even integer, as {} ({}) is not a multiple of {} ({})",
                                      names.hidden, shape.hidden, names.heads, shape.heads));
    shape.head_dim = family.head_dim != 0 ? family.head_dim : shape.hidden / shape.heads;
  }
  // Of latent attention some files say how much of a head turns there.
  if (!traits_of(family.family).latent_attention)
    MFSDP_TRY(fields.integer("head_dim", ShapeLimits::heads, shape.head_dim));
  MFSDP_TRY(fields.required_integer("vocab_size", ShapeLimits::dim, shape.vocab));
  MFSDP_TRY(fields.required_integer(names.positions, ShapeLimits::dim, shape.max_seq_len));
  MFSDP_TRY(fields.required_number(names.epsilon, shape.rms_norm_eps));
  return fields.boolean("tie_word_embeddings", shape.tied_embeddings);
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
  model.shape.fused_weights = family.fused_weights;
  model.shape.activation = family.activation;
  model.shape.scaled_embedding = family.scaled_embedding;
  model.shape.output_norms = family.output_norms;
  model.shape.zero_centered_norms = family.zero_centered_norms;
  model.shape.tied_embeddings = family.tied_embeddings;
  MFSDP_TRY(read_sizes(fields, family, model.shape));
  MFSDP_TRY(read_hf_attention(fields, family, model));
  MFSDP_TRY(read_hf_experts(fields, family, model.shape));
  MFSDP_TRY(check_shape(model.shape, where));
  return model;
}

Result<ModelShape> parse_hf_config(std::string_view text, const std::string& where) {
  MFSDP_LET(model, read_hf_config(text, where));
  const std::vector<std::string> gaps = gap_lines(model.gaps);
  if (!gaps.empty()) return fail(where, gaps.front());
  return model.shape;
}

}  // namespace mfsdp
