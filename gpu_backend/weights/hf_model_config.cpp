#include "gpu_backend/weights/hf_model_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/read_file.hpp"
#include "core/model/hf_config.hpp"
#include "gpu_backend/train/initial_weights.hpp"
#include "gpu_backend/weights/hf_folder.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLargestConfig = std::size_t{16} << 20;

std::string_view torch_dtype(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "bfloat16";
    case DType::fp16: return "float16";
    case DType::fp64: return "float64";
    default: return "float32";
  }
}

Json numbers_of(const std::vector<Rational>& factors) {
  Json list = Json::array();
  for (const Rational& factor : factors) list.push_back(factor.value());
  return list;
}

/// Phi-3's class has these three fields and no others. It computes the factor from the lengths of
/// contexts.
Json longrope_of(const ModelShape& shape) {
  const RopeScaling& scaling = shape.rope_scaling;
  Json object{{"type", "longrope"},
              {"short_factor", numbers_of(scaling.short_factors)},
              {"long_factor", numbers_of(scaling.long_factors)}};
  const Result<Rational> ratio = make_rational(shape.max_seq_len, scaling.original_max_seq_len);
  if (!ratio || scaling.factor != *ratio) object["factor"] = scaling.factor.value();
  if (scaling.attention_factor.num != 0)
    object["attention_factor"] = scaling.attention_factor.value();
  if (!shape.fused_weights)
    object["original_max_position_embeddings"] = scaling.original_max_seq_len;
  return object;
}

Json scaling_of(const ModelShape& shape) {
  const RopeScaling& scaling = shape.rope_scaling;
  if (scaling == RopeScaling{}) return nullptr;
  Json object;
  switch (scaling.kind) {
    case RopeKind::llama3:
      object = {{"rope_type", "llama3"},
                {"low_freq_factor", scaling.low_freq_factor.value()},
                {"high_freq_factor", scaling.high_freq_factor.value()}};
      break;
    case RopeKind::linear: return {{"rope_type", "linear"}, {"factor", scaling.factor.value()}};
    case RopeKind::yarn:
      object = {{"rope_type", "yarn"},
                {"beta_slow", scaling.low_freq_factor.value()},
                {"beta_fast", scaling.high_freq_factor.value()}};
      if (scaling.exact_range) object["truncate"] = false;
      if (scaling.score_magnitude.num != 0)
        object["mscale"] = object["mscale_all_dim"] = scaling.score_magnitude.value();
      break;
    case RopeKind::longrope: return longrope_of(shape);
  }
  object["factor"] = scaling.factor.value();
  object["original_max_position_embeddings"] = scaling.original_max_seq_len;
  if (scaling.attention_factor.num != 0 && scaling.score_magnitude.num == 0)
    object["attention_factor"] = scaling.attention_factor.value();
  return object;
}

/// Sliding windows for families whose classes list the layers that use them.
Json windows_of(const ModelShape& shape) {
  if (shape.sliding_window == 0) return {{"use_sliding_window", false}};
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < shape.layers; ++layer)
    types.push_back(shape.slides(layer) ? "sliding_attention" : "full_attention");
  return {{"use_sliding_window", true},
          {"sliding_window", shape.sliding_window},
          {"max_window_layers", shape.sliding_layers.front()},
          {"layer_types", std::move(types)}};
}

/// The class rounds head_dim times the factor down. A quotient that was rounded down would lose one
/// element.
double rotary_factor(const ModelShape& shape) {
  const auto whole = static_cast<double>(shape.head_dim);
  const auto turned = static_cast<double>(shape.rotary_dim);
  const double factor = turned / whole;
  return std::floor(factor * whole) < turned ? std::nextafter(factor, 1.0) : factor;
}

/// Gemma's three classes. They differ in the tensors that are normed.
Json gemma_of(const ModelShape& shape) {
  if (!shape.output_norms)
    return {{"model_type", "gemma"},
            {"architectures", {"GemmaForCausalLM"}},
            {"attention_bias", false},
            {"hidden_activation", "gelu_pytorch_tanh"}};
  const auto or_null = [](const Rational& value) {
    return value.num == 0 ? Json(nullptr) : Json(value.value());
  };
  // Later classes do not accept a float here.
  Json scalar = shape.head_dim;
  if (shape.query_scalar.num != 0)
    scalar = shape.query_scalar.den == 1 ? Json(shape.query_scalar.num)
                                         : Json(shape.query_scalar.value());
  Json family{{"model_type", "gemma2"},
              {"architectures", {"Gemma2ForCausalLM"}},
              {"attention_bias", false},
              {"hidden_activation", "gelu_pytorch_tanh"},
              {"attn_logit_softcapping", or_null(shape.score_cap)},
              {"final_logit_softcapping", or_null(shape.logit_cap)},
              {"query_pre_attn_scalar", scalar}};
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < shape.layers; ++layer)
    types.push_back(shape.slides(layer) ? "sliding_attention" : "full_attention");
  family["layer_types"] = std::move(types);
  family["sliding_window"] = shape.sliding_window == 0 ? shape.max_seq_len : shape.sliding_window;
  if (!shape.qk_norm) return family;
  family["model_type"] = "gemma3_text";
  family["architectures"] = {"Gemma3ForCausalLM"};
  family["rope_local_base_freq"] = shape.local_rope_theta.value();
  return family;
}

/// SmolLM3 has 0 for layers without RoPE, and no windows.
Json smollm3_of(const ModelShape& shape) {
  Json rotated = Json::array();
  for (std::int64_t layer = 0; layer < shape.layers; ++layer)
    rotated.push_back(shape.has_other_rope(layer) ? 0 : 1);
  return {{"model_type", "smollm3"},
          {"architectures", {"SmolLM3ForCausalLM"}},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"no_rope_layers", std::move(rotated)},
          {"use_sliding_window", false}};
}

bool has_multipliers(const ModelShape& shape) {
  return shape.embedding_multiplier.num != 0 || shape.residual_multiplier.num != 0 ||
         shape.logit_multiplier.num != 0;
}

/// Granite's class has four factors, whose default is 1.
Json granite_of(const ModelShape& shape) {
  const auto or_one = [](const Rational& factor) { return factor.num == 0 ? 1.0 : factor.value(); };
  const double scalar = shape.query_scalar.num != 0 ? shape.query_scalar.value()
                                                    : static_cast<double>(shape.head_dim);
  return {{"model_type", "granite"},
          {"architectures", {"GraniteForCausalLM"}},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"attention_multiplier", 1 / std::sqrt(scalar)},
          {"embedding_multiplier", or_one(shape.embedding_multiplier)},
          {"logits_scaling", 1 / or_one(shape.logit_multiplier)},
          {"residual_multiplier", or_one(shape.residual_multiplier)}};
}

/// GPT-2's class uses its own names for all fields.
Json gpt2_of(const ModelShape& shape) {
  return {{"model_type", "gpt2"},
          {"architectures", {"GPT2LMHeadModel"}},
          {"activation_function", "gelu_new"},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0},
          {"layer_norm_epsilon", shape.rms_norm_eps.value()},
          {"n_ctx", shape.max_seq_len},
          {"n_embd", shape.hidden},
          {"n_head", shape.heads},
          {"n_inner", shape.intermediate},
          {"n_layer", shape.layers},
          {"n_positions", shape.max_seq_len},
          {"reorder_and_upcast_attn", false},
          {"scale_attn_by_inverse_layer_idx", false},
          {"scale_attn_weights", true}};
}

/// Fields with the same name in all other families' classes.
Json common_of(const ModelShape& shape) {
  return {{"attention_dropout", 0.0},
          {"head_dim", shape.head_dim},
          {"hidden_act", shape.activation == Activation::silu ? "silu" : "gelu_pytorch_tanh"},
          {"hidden_size", shape.hidden},
          {"intermediate_size",
           shape.intermediate != 0 ? shape.intermediate : shape.expert_intermediate},
          {"max_position_embeddings", shape.max_seq_len},
          {"num_attention_heads", shape.heads},
          {"num_hidden_layers", shape.layers},
          {"num_key_value_heads", shape.kv_heads},
          {"rms_norm_eps", shape.rms_norm_eps.value()},
          {"rope_scaling", scaling_of(shape)},
          {"rope_theta", shape.rope_theta.value()}};
}

/// Experts in groups, as in the classes of DeepSeek and GLM-4.5.
Json grouped_experts_of(const ModelShape& shape) {
  const bool groups = shape.router_groups != 0;
  const auto count = [](std::int64_t of, std::int64_t one) { return one == 0 ? 0 : of / one; };
  const Rational scale = shape.routed_scale.num == 0 ? Rational{1, 1} : shape.routed_scale;
  return {{"first_k_dense_replace", shape.dense_layers.size()},
          {"moe_intermediate_size", shape.expert_intermediate},
          {"n_group", groups ? shape.router_groups : 1},
          {"n_routed_experts", shape.experts},
          {"n_shared_experts", count(shape.shared_intermediate, shape.expert_intermediate)},
          {"norm_topk_prob", shape.normalised_routing},
          {"num_experts_per_tok", shape.experts_per_token},
          {"routed_scaling_factor", scale.value()},
          {"topk_group", groups ? shape.chosen_groups : 1}};
}

/// DeepSeek's two classes. They differ in the router.
Json deepseek_of(const ModelShape& shape) {
  const bool sigmoids = shape.sigmoid_routing;
  const bool groups = shape.router_groups != 0;
  const Json latent = shape.query_latent == 0 ? Json(nullptr) : Json(shape.query_latent);
  Json family = grouped_experts_of(shape);
  family.update({{"model_type", sigmoids ? "deepseek_v3" : "deepseek_v2"},
                 {"architectures", {sigmoids ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM"}},
                 {"attention_bias", false},
                 {"head_dim", shape.rotary_dim},
                 {"kv_lora_rank", shape.kv_latent},
                 {"moe_layer_freq", 1},
                 {"q_lora_rank", latent},
                 {"qk_nope_head_dim", shape.head_dim - shape.rotary_dim},
                 {"qk_rope_head_dim", shape.rotary_dim},
                 {"scoring_func", sigmoids ? "sigmoid" : "softmax"},
                 {"topk_method", sigmoids ? "noaux_tc"
                                 : groups ? "group_limited_greedy"
                                          : "greedy"},
                 {"v_head_dim", shape.value_head_dim()}});
  if (sigmoids) family["rope_interleave"] = true;
  return family;
}

Json glm4_moe_of(const ModelShape& shape) {
  Json family = grouped_experts_of(shape);
  family.update({{"model_type", "glm4_moe"},
                 {"architectures", {"Glm4MoeForCausalLM"}},
                 {"attention_bias", shape.qkv_bias},
                 {"partial_rotary_factor", shape.rotary_dim == 0 ? 1.0 : rotary_factor(shape)},
                 {"use_qk_norm", shape.qk_norm}});
  return family;
}

Json minimax_m2_of(const ModelShape& shape) {
  return {{"model_type", "minimax_m2"},
          {"architectures", {"MiniMaxM2ForCausalLM"}},
          {"num_experts_per_tok", shape.experts_per_token},
          {"num_local_experts", shape.experts},
          {"qk_norm_type", "per_layer"},
          {"rotary_dim", shape.rotated_dim()},
          {"scoring_func", "sigmoid"},
          {"use_qk_norm", true},
          {"use_routing_bias", true}};
}

/// Classes of models with experts. All have the coefficient of the balance loss, and add the loss
/// only if output_router_logits is set.
Json experts_of(const ModelShape& shape) {
  const bool has_loss = shape.router_aux_loss.num != 0 || shape.router_z_loss.num != 0;
  Json family{{"num_experts_per_tok", shape.experts_per_token},
              {"output_router_logits", has_loss},
              {"router_aux_loss_coef", shape.router_aux_loss.value()}};
  if (shape.router_z_loss.num != 0) family["router_z_loss_coef"] = shape.router_z_loss.value();
  const Json window = shape.sliding_window == 0 ? Json(nullptr) : Json(shape.sliding_window);
  if (shape.family == Family::gpt_oss) {
    Json types = Json::array();
    for (std::int64_t layer = 0; layer < shape.layers; ++layer)
      types.push_back(shape.slides(layer) ? "sliding_attention" : "full_attention");
    family.update({{"model_type", "gpt_oss"},
                   {"architectures", {"GptOssForCausalLM"}},
                   {"attention_bias", true},
                   {"layer_types", std::move(types)},
                   {"num_local_experts", shape.experts},
                   {"sliding_window", window.is_null() ? Json(shape.max_seq_len) : window},
                   {"swiglu_limit", shape.swiglu_limit.value()}});
    return family;
  }
  if (shape.family == Family::mixtral) {
    family.update({{"model_type", "mixtral"},
                   {"architectures", {"MixtralForCausalLM"}},
                   {"num_local_experts", shape.experts},
                   {"sliding_window", window}});
    return family;
  }
  family.update({{"num_experts", shape.experts},
                 {"norm_topk_prob", shape.normalised_routing},
                 {"attention_bias", false}});
  if (shape.family == Family::olmoe) {
    family.update(
        {{"model_type", "olmoe"}, {"architectures", {"OlmoeForCausalLM"}}, {"clip_qkv", nullptr}});
    return family;
  }
  if (shape.shared_intermediate != 0)
    family.update({{"model_type", "qwen2_moe"},
                   {"architectures", {"Qwen2MoeForCausalLM"}},
                   {"shared_expert_intermediate_size", shape.shared_intermediate}});
  else
    family.update({{"model_type", "qwen3_moe"}, {"architectures", {"Qwen3MoeForCausalLM"}}});
  family.update({{"decoder_sparse_step", 1},
                 {"mlp_only_layers", shape.dense_layers},
                 {"moe_intermediate_size", shape.expert_intermediate}});
  family.update(windows_of(shape));
  return family;
}

/// Fields that only one family's class reads.
Json family_of(const ModelShape& shape) {
  Json family;
  if (shape.family == Family::gpt2) return gpt2_of(shape);
  if (shape.family == Family::olmo2) {
    family = windows_of(shape);
    const bool windows = shape.sliding_window != 0;
    if (!windows) family.clear();
    family.update({{"model_type", windows ? "olmo3" : "olmo2"},
                   {"architectures", {windows ? "Olmo3ForCausalLM" : "Olmo2ForCausalLM"}},
                   {"attention_bias", false}});
    return family;
  }
  if (shape.family == Family::deepseek) return deepseek_of(shape);
  if (shape.family == Family::glm4_moe) return glm4_moe_of(shape);
  if (shape.family == Family::minimax_m2) return minimax_m2_of(shape);
  if (shape.experts != 0) return experts_of(shape);
  if (shape.zero_centered_norms) return gemma_of(shape);
  if (!shape.nope_layers.empty()) return smollm3_of(shape);
  if (has_multipliers(shape)) return granite_of(shape);
  if (shape.qkv_bias) {
    family = {{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}};
    family.update(windows_of(shape));
    return family;
  }
  if (shape.qk_norm) {
    family = {{"model_type", "qwen3"},
              {"architectures", {"Qwen3ForCausalLM"}},
              {"attention_bias", false}};
    family.update(windows_of(shape));
    return family;
  }
  const Json window = shape.sliding_window == 0 ? Json(nullptr) : Json(shape.sliding_window);
  if (shape.fused_weights) {
    family = {{"model_type", "phi3"},     {"architectures", {"Phi3ForCausalLM"}},
              {"sliding_window", window}, {"embd_pdrop", 0.0},
              {"resid_pdrop", 0.0},       {"pad_token_id", nullptr}};
    // The class reads it from here, and reads neither if nothing is scaled.
    family["original_max_position_embeddings"] = shape.rope_scaling.kind == RopeKind::longrope
                                                     ? shape.rope_scaling.original_max_seq_len
                                                     : shape.max_seq_len;
    if (shape.rotary_dim != 0) family["partial_rotary_factor"] = rotary_factor(shape);
    return family;
  }
  if (shape.sliding_window != 0)
    return {{"model_type", "mistral"},
            {"architectures", {"MistralForCausalLM"}},
            {"sliding_window", window}};
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"pretraining_tp", 1}};
}

/// A field in which two configs may differ, by Hugging Face's name.
struct Field {
  std::string_view name;
  std::string value;
};

auto fields_of(const ModelShape& s) {
  const auto integer = [](std::int64_t value) { return std::to_string(value); };
  const auto real = [](const Rational& value) { return fmt::format("{}", value.value()); };
  const auto yes = [](bool value) { return std::string(value ? "true" : "false"); };
  const auto list = [&](const std::vector<Rational>& values) {
    std::vector<std::string> numbers;
    for (const Rational& value : values) numbers.push_back(real(value));
    return fmt::format("{}", fmt::join(numbers, ", "));
  };
  const RopeScaling& scaling = s.rope_scaling;
  return std::array{
      Field{"model_type", family_of(s).at("model_type").get<std::string>()},
      Field{"vocab_size", integer(s.vocab)},
      Field{"hidden_size", integer(s.hidden)},
      Field{"num_hidden_layers", integer(s.layers)},
      Field{"num_attention_heads", integer(s.heads)},
      Field{"num_key_value_heads", integer(s.kv_heads)},
      Field{"head_dim", integer(s.head_dim)},
      Field{"intermediate_size", integer(s.intermediate)},
      Field{"num_experts", integer(s.experts)},
      Field{"num_experts_per_tok", integer(s.experts_per_token)},
      Field{"moe_intermediate_size", integer(s.expert_intermediate)},
      Field{"shared_expert_intermediate_size", integer(s.shared_intermediate)},
      Field{"layers without experts", fmt::format("{}", fmt::join(s.dense_layers, ", "))},
      Field{"norm_topk_prob", yes(s.normalised_routing)},
      Field{"swiglu_limit", real(s.swiglu_limit)},
      Field{"scoring_func", s.sigmoid_routing ? "sigmoid" : "softmax"},
      Field{"routed_scaling_factor", real(s.routed_scale)},
      Field{"n_group", integer(s.router_groups)},
      Field{"topk_group", integer(s.chosen_groups)},
      Field{"q_lora_rank", integer(s.query_latent)},
      Field{"kv_lora_rank", integer(s.kv_latent)},
      Field{"v_head_dim", integer(s.value_head_dim())},
      Field{"tie_word_embeddings", yes(s.tied_embeddings)},
      Field{"biases of query, key and value", yes(s.qkv_bias)},
      Field{"norms of query and key", yes(s.qk_norm)},
      Field{"hidden_act", std::string(to_string(s.activation))},
      Field{"norms of what attention and MLP add", yes(s.output_norms)},
      Field{"norms by 1 + weight", yes(s.zero_centered_norms)},
      Field{"scaled embedding", yes(s.scaled_embedding)},
      Field{"embedding_multiplier", real(s.embedding_multiplier)},
      Field{"residual_multiplier", real(s.residual_multiplier)},
      Field{"factor of logits", real(s.logit_multiplier)},
      Field{"rms_norm_eps", real(s.rms_norm_eps)},
      Field{"epsilon of latent vectors' norms", real(s.latent_norm_eps)},
      Field{"sliding_window", integer(s.sliding_window)},
      Field{"layers that slide", fmt::format("{}", fmt::join(s.sliding_layers, ", "))},
      Field{"one tensor of query, key and value", yes(s.fused_weights)},
      Field{"partial_rotary_factor, elements", integer(s.rotated_dim())},
      Field{"attn_logit_softcapping", real(s.score_cap)},
      Field{"final_logit_softcapping", real(s.logit_cap)},
      Field{"query_pre_attn_scalar", real(s.query_scalar)},
      Field{"n_positions", s.traits().rotates ? "" : integer(s.max_seq_len)},
      Field{"rope_local_base_freq", real(s.local_rope_theta)},
      Field{"layers without RoPE", fmt::format("{}", fmt::join(s.nope_layers, ", "))},
      Field{"rope_theta", real(s.rope_theta)},
      Field{"rope_scaling.rope_type", std::string(to_string(scaling.kind))},
      Field{"rope_scaling.attention_factor", real(scaling.attention_factor)},
      Field{"rope_scaling.truncate", yes(!scaling.exact_range)},
      Field{"rope_scaling.short_factor", list(scaling.short_factors)},
      Field{"rope_scaling.long_factor", list(scaling.long_factors)},
      Field{"rope_scaling.factor", real(scaling.factor)},
      Field{"rope_scaling.low_freq_factor", real(scaling.low_freq_factor)},
      Field{"rope_scaling.high_freq_factor", real(scaling.high_freq_factor)},
      Field{"rope_scaling.original_max_position_embeddings", integer(scaling.original_max_seq_len)},
  };
}

}  // namespace

Result<std::string> hf_config_text(const ModelShape& shape, DType dtype) {
  Json config = family_of(shape);
  if (shape.family != Family::gpt2) {
    Json common = common_of(shape);
    common.update(config);  // for names that a class uses with another meaning
    config = std::move(common);
  }
  config.update({{"bos_token_id", nullptr},
                 {"eos_token_id", nullptr},
                 {"initializer_range", kInitialDeviation},
                 {"tie_word_embeddings", shape.tied_embeddings},
                 {"torch_dtype", torch_dtype(dtype)},
                 {"use_cache", true},
                 {"vocab_size", shape.vocab}});
  std::string text = config.dump(2) + "\n";
  const auto read = parse_hf_config(text, "config.json of the plan's model");
  if (!read) return tl::unexpected<Error>(read.error());
  if (*read != shape)
    return fail("plan, model", "has a shape that no config.json of transformers can state");
  return text;
}

Result<void> check_hf_config(const std::filesystem::path& folder, const ModelShape& shape) {
  const std::filesystem::path path = folder / kHfConfig;
  MFSDP_LET(text, read_file(path, "a config.json", kLargestConfig));
  MFSDP_LET(found, parse_hf_config(text, path.string()));
  const auto expected = fields_of(shape);
  const auto got = fields_of(found);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected.at(i).value == got.at(i).value) continue;
    // For classes that compute the same, use the name in the file.
    const std::string value =
        i > 0 ? got.at(i).value
              : Json::parse(text, nullptr, false).value(got.front().name, got.front().value);
    return fail(
        fmt::format("{}, {}", path.string(), expected.at(i).name),
        fmt::format("expected {}, as the plan's model has, got {}", expected.at(i).value, value));
  }
  return {};
}

}  // namespace mfsdp
