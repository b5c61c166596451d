#include "core/model/hf_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/base/text.hpp"
#include "core/model/family.hpp"
#include "core/model/foreign_fields.hpp"
#include "core/model/foreign_types.hpp"
#include "core/model/hf_fields.hpp"
#include "core/model/hf_parts.hpp"
#include "core/model/model_shape.hpp"

namespace mfsdp {
namespace {

using ParsedJson = HfFields::Json;
using Fields = HfFields;

tl::unexpected<Error> other_type(const Fields& fields);

/// The family whose class `architectures` names; null where it names none of these, or several.
const HfFamily* family_of_class(const Fields& fields) {
  const ParsedJson* classes = fields.find("architectures");
  if (classes == nullptr || !classes->is_array() || classes->size() != 1) return nullptr;
  const ParsedJson& name = classes->front();
  if (!name.is_string()) return nullptr;
  const auto family =
      std::ranges::find(hf_families(), name.get_ref<const std::string&>(), &HfFamily::class_name);
  return family == hf_families().end() ? nullptr : &*family;
}

Result<HfFamily> read_family(const Fields& fields, std::vector<std::string>& notes) {
  const ParsedJson* field = fields.find("model_type");
  if (field != nullptr && field->is_string()) {
    const auto& type = field->get_ref<const std::string&>();
    const auto family = std::ranges::find(hf_families(), type, &HfFamily::model_type);
    if (family != hf_families().end()) return *family;
  }
  if (const HfFamily* family = family_of_class(fields)) {
    notes.push_back(fmt::format("model_type {} is read as {}, whose class {} the file names",
                                field == nullptr ? "(none)" : json_excerpt(*field),
                                family->model_type, family->class_name));
    return *family;
  }
  if (field != nullptr && field->is_string()) return other_type(fields);
  return fields.wrong("model_type", hf_family_list());
}

/// Classifiers and similar classes have another head. A base model is trained as a language model.
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

/// Gemma's classes use GELU's tanh form and ignore the older field.
Result<void> check_activation(const Fields& fields, const HfFamily& family) {
  const bool gelu = family.activation == Activation::gelu_tanh;
  const char* const newer = family.names.newer_activation;
  const bool is_new = newer != nullptr && fields.find(newer) != nullptr;
  const char* name = is_new ? newer : family.names.activation;
  const ParsedJson* stated = fields.find(name);
  fields.know({family.names.activation});  // ignored where the newer name is used
  if (stated == nullptr) return {};
  if (!gelu) return *stated == "silu" ? Result<void>{} : fields.wrong(name, "\"silu\"");
  if (*stated == "gelu_pytorch_tanh" || (family.family == Family::gpt2 && *stated == "gelu_new") ||
      (*stated == "gelu" && newer != nullptr && !is_new))
    return {};
  return fields.wrong(name,
                      family.family == Family::gpt2 ? "\"gelu_new\"" : "\"gelu_pytorch_tanh\"");
}

/// GPT-2: attention logits are divided by the root of head_dim only where this field is true.
Result<void> check_scaled_attention(const Fields& fields) {
  const ParsedJson* scaled = fields.find("scale_attn_weights");
  if (scaled == nullptr || *scaled == true) return {};
  return fields.wrong("scale_attn_weights", "true (unscaled attention logits are not modelled)");
}

/// A quantised checkpoint has the shape of the model that was quantised, which is what is trained.
Result<void> read_quantisation(const Fields& fields, std::vector<std::string>& notes) {
  MFSDP_LET(config, fields.object("quantization_config"));
  if (!config) return {};
  config->know_all();
  const ParsedJson* method = config->find("quant_method");
  notes.push_back(fmt::format(
      "the model is planned as before its quantisation{}: all weights are of --param-dtype",
      method == nullptr ? std::string() : fmt::format(" by {}", json_excerpt(*method))));
  return {};
}

/// Fields that would change the computation in ways that the recipe lacks.
Result<void> refuse_unsupported(const Fields& fields, const HfFamily& family,
                                std::vector<std::string>& notes) {
  MFSDP_TRY(read_quantisation(fields, notes));
  MFSDP_TRY(check_activation(fields, family));
  MFSDP_TRY(check_scaled_attention(fields));
  // Qwen2 has its bias independent of this field; the other three have none.
  if (!family.qkv_bias && !family.states_biases_and_norms)
    MFSDP_TRY(fields.off("attention_bias", "attention biases"));
  const ParsedJson* bias = fields.find("attention_bias");
  if (traits_of(family.family).sinks && bias != nullptr && *bias != true)
    return fields.wrong("attention_bias", "true (this model_type without them is not modelled)");
  MFSDP_TRY(fields.off("mlp_bias", "biases in the MLP"));
  MFSDP_TRY(check_head(fields));
  return check_foreign_fields(fields, family, notes);
}

/// Heads of latent attention: the rotated elements follow the others.
Result<void> read_latent_sizes(const Fields& fields, ModelShape& shape) {
  std::int64_t rest = 0;
  MFSDP_TRY(fields.required_integer("qk_nope_head_dim", ShapeLimits::heads, rest));
  MFSDP_TRY(fields.required_integer("qk_rope_head_dim", ShapeLimits::heads, shape.rotary_dim));
  MFSDP_TRY(fields.required_integer("v_head_dim", ShapeLimits::heads, shape.value_dim));
  MFSDP_TRY(fields.required_integer("kv_lora_rank", ShapeLimits::dim, shape.kv_latent));
  MFSDP_TRY(fields.stated("q_lora_rank",
                          "a positive integer, or null (queries without a latent vector)"));
  MFSDP_TRY(fields.integer("q_lora_rank", ShapeLimits::dim, shape.query_latent));
  if (shape.rotary_dim % 2 != 0)
    return fields.wrong("qk_rope_head_dim", "an even number (RoPE rotates pairs)");
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
    return fields.wrong("rope_interleave",
                        "true (RoPE of halves is not modelled for latent attention)");
  // Norms of latent vectors use it always.
  const ParsedJson* epsilon = fields.find("rms_norm_eps");
  if (epsilon != nullptr && *epsilon != 1e-6) shape.latent_norm_eps = {1, 1'000'000};
  return {};
}

/// A size that the file must state if the family has no default.
Result<void> read_size(const Fields& fields, const char* name, std::int64_t most,
                       std::int64_t otherwise, std::int64_t& value) {
  if (otherwise == 0) return fields.required_integer(name, most, value);
  value = otherwise;
  return fields.integer(name, most, value);
}

/// transformers takes a size of GPT-2 by its general name, too, so two values would be two models.
Result<void> check_general_names(const Fields& fields, const HfNames& names) {
  constexpr HfNames kGeneral{};
  for (const auto& [own, general] : {std::pair{names.hidden, kGeneral.hidden},
                                     {names.layers, kGeneral.layers},
                                     {names.heads, kGeneral.heads},
                                     {names.positions, kGeneral.positions}}) {
    if (std::string_view(own) == general) continue;
    const ParsedJson* first = fields.find(own);
    const ParsedJson* second = fields.find(general);
    if (first != nullptr && second != nullptr && *first != *second)
      return fields.wrong(general, fmt::format("the value of {}, {}", own, first->dump()));
  }
  return {};
}

Result<void> read_sizes(const Fields& fields, const HfFamily& family, ModelShape& shape) {
  const HfNames& names = family.names;
  MFSDP_TRY(check_general_names(fields, names));
  MFSDP_TRY(fields.required_integer(names.hidden, ShapeLimits::dim, shape.hidden));
  if (family.intermediate_times != 0) {
    shape.intermediate = checked_mul(family.intermediate_times, shape.hidden);
    MFSDP_TRY(fields.integer(names.intermediate, ShapeLimits::dim, shape.intermediate));
  } else {
    MFSDP_TRY(fields.required_integer(names.intermediate, ShapeLimits::dim, shape.intermediate));
  }
  MFSDP_TRY(fields.required_integer(names.layers, ShapeLimits::layers, shape.layers));
  MFSDP_TRY(read_size(fields, names.heads, ShapeLimits::heads, family.sizes.heads, shape.heads));
  const bool stated = fields.contains("num_key_value_heads");
  const bool has_default = family.sizes.kv_heads != 0;
  if (!stated && !family.kv_heads_default_to_heads && !has_default)
    return fields.wrong("num_key_value_heads", fmt::format("an integer from 1 to {}", shape.heads));
  shape.kv_heads = !stated && has_default ? family.sizes.kv_heads : shape.heads;
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
  // Some files state here the rotated elements of latent attention.
  fields.know({"head_dim"});
  if (!traits_of(family.family).latent_attention)
    MFSDP_TRY(fields.integer("head_dim", ShapeLimits::heads, shape.head_dim));
  MFSDP_TRY(read_size(fields, "vocab_size", ShapeLimits::dim, family.sizes.vocab, shape.vocab));
  MFSDP_TRY(read_size(fields, names.positions, ShapeLimits::dim, family.sizes.positions,
                      shape.max_seq_len));
  if (family.sizes.epsilon.num != 0 && fields.find(names.epsilon) == nullptr)
    shape.rms_norm_eps = family.sizes.epsilon;
  else
    MFSDP_TRY(fields.required_number(names.epsilon, shape.rms_norm_eps));
  return fields.boolean("tie_word_embeddings", shape.tied_embeddings);
}

Result<HfModel> read_as(const Fields& fields, const HfFamily& family) {
  HfModel model;
  MFSDP_TRY(refuse_unsupported(fields, family, model.notes));
  model.shape.family = family.family;
  model.shape.qkv_bias = family.qkv_bias;
  model.shape.qk_norm = family.qk_norm;
  model.shape.fused_weights = family.fused_weights;
  model.shape.activation = family.activation;
  model.shape.scaled_embedding = family.scaled_embedding;
  model.shape.output_norms = family.output_norms;
  model.shape.zero_centered_norms = family.zero_centered_norms;
  model.shape.tied_embeddings = family.tied_embeddings;
  if (family.states_biases_and_norms) {
    MFSDP_TRY(fields.boolean("attention_bias", model.shape.qkv_bias));
    MFSDP_TRY(fields.boolean("use_qk_norm", model.shape.qk_norm));
  }
  MFSDP_TRY(read_sizes(fields, family, model.shape));
  MFSDP_TRY(read_hf_attention(fields, family, model));
  MFSDP_TRY(read_hf_variants(fields, family, model.shape));
  MFSDP_TRY(read_hf_experts(fields, family, model.shape));
  if (family.sparse_attention) MFSDP_TRY(read_hf_indexer(fields, model));
  if (family.chunked_attention) {
    model.gaps.chunk = 8192;  // the default of transformers
    MFSDP_TRY(fields.integer("attention_chunk_size", ShapeLimits::dim, model.gaps.chunk));
    fields.know({"attn_temperature_tuning", "floor_scale", "attn_scale"});
  }
  MFSDP_TRY(check_shape(model.shape, fields.where()));
  return model;
}

/// The error about an unknown model_type. It names fields that no family has and known parts of the
/// class; else the model_type as which the file can be read.
tl::unexpected<Error> other_type(const Fields& fields) {
  const auto& type = fields.raw().at("model_type").get_ref<const std::string&>();
  const std::string shown = json_excerpt(type);
  std::vector<std::string> reasons;
  if (const auto what = what_class_has(type))
    reasons.push_back(fmt::format("its class has {}", *what));
  if (const auto has = foreign_reasons(fields.raw()); !has.empty())
    reasons.push_back(fmt::format("the file has {}", fmt::join(has, ", ")));
  if (!reasons.empty())
    return fail(fields.where(),
                fmt::format("{}: {} is not modelled: {} (docs/reference/limits.md)",
                            fields.named("model_type"), shown, fmt::join(reasons, "; ")));
  constexpr std::array<std::string_view, 6> kTried{"llama",     "gpt2",        "mixtral",
                                                   "qwen3_moe", "deepseek_v3", "deepseek_v2"};
  for (const std::string_view name : kTried)
    if (read_as(fields, *std::ranges::find(hf_families(), name, &HfFamily::model_type)))
      return fail(fields.where(),
                  fmt::format("{}: {} is not known, and what its class computes is not in "
                              "the file; if it computes as {} does, set model_type to \"{}\"",
                              fields.named("model_type"), shown, name, name));
  return fields.wrong("model_type", hf_family_list());
}

/// Names of fields that were not read: those of `json`, whose own name is the first part of the
/// prefix, and of objects in it whose fields are read one by one.
void add_passed_over(const ParsedJson& json, const std::string& prefix, std::size_t own_name,
                     const AskedFields& asked, std::vector<std::string>& names) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix + key;
    if (value.is_object() && asked.has_object(name))
      add_passed_over(value, name + ".", own_name, asked, names);
    else if (!value.is_null() && !asked.has(name) && !is_harmless_field(name.substr(own_name)))
      names.push_back(name);
  }
}

std::optional<std::string> passed_over_note(const Fields& fields, const AskedFields& asked) {
  constexpr std::size_t kMostNames = 12;
  std::vector<std::string> names;
  const std::string prefix = fields.named("");
  add_passed_over(fields.raw(), prefix, prefix.size(), asked, names);
  if (names.empty()) return std::nullopt;
  const std::size_t shown = std::min(names.size(), kMostNames);
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(shown);
  std::string text =
      fmt::format("unknown fields were ignored: {}", fmt::join(names.begin(), end, ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return printable(text);
}

}  // namespace

Result<HfModel> read_hf_config(std::string_view text, const std::string& where) {
  MFSDP_LET(document, parse_python_json(text, where));
  if (!document.is_object())
    return fail(where, fmt::format("expected a JSON object, got {}", json_excerpt(document)));
  std::vector<std::string> notes;
  MFSDP_LET(text_part, text_part_of(document, where));
  if (text_part.note) notes.push_back(*text_part.note);
  AskedFields asked;
  const Fields fields(*text_part.config, where, text_part.prefix, &asked);
  MFSDP_LET(family, read_family(fields, notes));
  MFSDP_LET(model, read_as(fields, family));
  notes.insert(notes.end(), model.notes.begin(), model.notes.end());
  if (auto note = passed_over_note(fields, asked)) notes.push_back(std::move(*note));
  model.notes = std::move(notes);
  return std::move(model);
}

Result<ModelShape> parse_hf_config(std::string_view text, const std::string& where) {
  MFSDP_LET(model, read_hf_config(text, where));
  const std::vector<std::string> gaps = gap_lines(model.gaps);
  if (!gaps.empty()) return fail(where, gaps.front());
  return model.shape;
}

}  // namespace mfsdp
