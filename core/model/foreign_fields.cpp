#include "core/model/foreign_fields.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/text.hpp"
#include "core/model/foreign_words.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

constexpr ForeignTo kUnknown = ForeignTo::unknown_types;
constexpr ForeignTo kElsewhere = ForeignTo::other_families;

constexpr std::string_view kExperts = "experts of this model_type";
constexpr std::string_view kRouting = "another routing of experts";
constexpr std::string_view kScales = "scaled activations";
constexpr std::string_view kBiases = "biases";
constexpr std::string_view kPrediction = "multi-token prediction";
constexpr std::string_view kRepeated = "looped layers";
constexpr std::string_view kUnlike = "layers that differ in size";
constexpr std::string_view kNorms = "norms of queries and keys";
constexpr std::string_view kPartial = "RoPE of a part of each head";
constexpr std::string_view kPositions = "other positions than RoPE";
constexpr std::string_view kParallel = "attention in parallel with the MLP";
constexpr std::string_view kSound = "a sound encoder";
constexpr std::string_view kCross = "cross-attention";
constexpr std::string_view kLatent = "multi-head latent attention";
constexpr std::string_view kActivation = "another activation";
constexpr std::string_view kPerLayer = "embeddings of each layer";

/// Names in transformers and in classes on its hub (configuration_*.py, read in November 2026).
constexpr std::array kForeign{
    // Attention.
    ForeignField{"kv_lora_rank", kLatent, Neutral::off, kElsewhere},
    ForeignField{"attention_chunk_size", "chunked attention"},
    ForeignField{"cross_attention_layers", kCross},
    ForeignField{"add_cross_attention", kCross},
    ForeignField{"num_kv_shared_layers", "keys and values that layers share"},
    ForeignField{"scale_attn_by_inverse_layer_idx", "attention logits scaled by layer"},
    ForeignField{"reorder_and_upcast_attn", "attention in another order"},
    ForeignField{"index_topk", foreign_words::kSparse, Neutral::off, kElsewhere},
    ForeignField{"index_n_heads", foreign_words::kSparse, Neutral::off, kElsewhere},
    ForeignField{"index_head_dim", foreign_words::kSparse, Neutral::off, kElsewhere},
    ForeignField{"nsa_*", foreign_words::kSparse},
    ForeignField{"moba_*", foreign_words::kSparse},
    ForeignField{"sparse_attention*", foreign_words::kSparse, Neutral::not_enabled},
    ForeignField{"attn_output_gate", "gated attention"},
    ForeignField{"gated_attention", "gated attention"},
    ForeignField{"use_bidirectional_attention", "bidirectional attention"},
    ForeignField{"add_swa_attention_sink_bias", "attention sinks"},
    ForeignField{"add_full_attention_sink_bias", "attention sinks"},
    ForeignField{"clip_qkv", "clipped queries and keys"},
    ForeignField{"compress_ratios", "compressed attention"},
    ForeignField{"o_lora_rank", "an output projection of low rank"},
    ForeignField{"attention_k_eq_v", "keys that are values too"},
    ForeignField{"attention_value_scale", "scaled values", Neutral::one},
    ForeignField{"qk_norm_type", "norms over all of a layer's heads", Neutral::per_head, kUnknown},
    ForeignField{"qk_norm", kNorms, Neutral::off, kElsewhere},
    ForeignField{"use_qk_norm", kNorms, Neutral::off, kElsewhere},
    ForeignField{"qk_layernorm", kNorms, Neutral::off, kElsewhere},
    ForeignField{"query_key_norm", kNorms, Neutral::off, kElsewhere},
    ForeignField{"use_query_key_norm", kNorms, Neutral::off, kElsewhere},
    // Layers other than attention, or of several kinds.
    ForeignField{"hybrid_override_pattern", "layers of several kinds", Neutral::attention},
    ForeignField{"hybrid_layer_pattern", "layers of several kinds"},
    ForeignField{"layers_block_type", "layers of several kinds", Neutral::attention},
    ForeignField{"block_types", "layers of several kinds", Neutral::attention},
    ForeignField{"layer_types", "layers of several kinds", Neutral::attention, kUnknown},
    ForeignField{"attn_layer_period", "layers of several kinds", Neutral::one},
    ForeignField{"attn_layer_indices", "layers of several kinds"},
    ForeignField{"full_attn_idxs", foreign_words::kConvolutions},
    ForeignField{"conv_L_cache", foreign_words::kConvolutions},
    ForeignField{"attn_type_list", foreign_words::kLinear, Neutral::one},
    ForeignField{"full_attention_interval", foreign_words::kLinear, Neutral::one},
    ForeignField{"linear_attn_*", foreign_words::kLinear, Neutral::one},
    ForeignField{"linear_num_*", foreign_words::kLinear},
    ForeignField{"linear_key_*", foreign_words::kLinear},
    ForeignField{"linear_value_*", foreign_words::kLinear},
    ForeignField{"linear_conv_*", foreign_words::kLinear},
    ForeignField{"layer_group_size", foreign_words::kLinear, Neutral::one, kUnknown},
    ForeignField{"mamba_*", foreign_words::kStateSpace},
    ForeignField{"ssm_*", foreign_words::kStateSpace, Neutral::one},
    ForeignField{"state_size", foreign_words::kStateSpace},
    ForeignField{"time_step_*", foreign_words::kStateSpace, Neutral::off, kUnknown},
    ForeignField{"rwkv*", "recurrent layers"},
    ForeignField{"lru_width", "recurrent layers"},
    ForeignField{"num_loops", kRepeated, Neutral::one},
    ForeignField{"loop_*", kRepeated, Neutral::one},
    ForeignField{"total_ut_steps", kRepeated, Neutral::one},
    ForeignField{"mean_recurrence", kRepeated, Neutral::one},
    ForeignField{"n_layers_in_recurrent_block", kRepeated},
    ForeignField{"block_configs", kUnlike},
    ForeignField{"per_layer_config", kUnlike},
    ForeignField{"num_query_heads", kUnlike},
    ForeignField{"global_head_dim", kUnlike},
    ForeignField{"num_global_key_value_heads", kUnlike},
    ForeignField{"ffn_multipliers", kUnlike},
    ForeignField{"hidden_size_per_layer_input", kPerLayer},
    ForeignField{"vocab_size_per_layer_input", kPerLayer},
    ForeignField{"altup_*", "alternating updates"},
    ForeignField{"laurel_rank", "low-rank residuals"},
    ForeignField{"hc_mult", "hyper-connections", Neutral::one},
    ForeignField{"attn_res_block_size", "attention over residuals"},
    ForeignField{"activation_sparsity_pattern", "sparse activations"},
    // Experts.
    ForeignField{"num_local_experts", kExperts, Neutral::one, kElsewhere},
    ForeignField{"num_experts", kExperts, Neutral::one, kElsewhere},
    ForeignField{"n_routed_experts", kExperts, Neutral::one, kElsewhere},
    ForeignField{"moe_num_experts", kExperts, Neutral::one, kElsewhere},
    ForeignField{"zero_expert_num", "experts without computation"},
    ForeignField{"moe_latent_size", "experts of latent vectors"},
    ForeignField{"routed_expert_hidden_size", "experts of latent vectors"},
    ForeignField{"num_hash_layers", "experts chosen by hashes"},
    ForeignField{"enable_moe_block", "experts beside an MLP"},
    ForeignField{"scoring_func", kRouting, Neutral::softmax, kElsewhere},
    ForeignField{"score_function", kRouting, Neutral::softmax},
    ForeignField{"moe_router_score_function", kRouting, Neutral::softmax},
    ForeignField{"use_routing_bias", kRouting, Neutral::off, kElsewhere},
    ForeignField{"moe_router_enable_expert_bias", kRouting},
    ForeignField{"n_group", kRouting, Neutral::one, kElsewhere},
    ForeignField{"num_expert_group", kRouting, Neutral::one},
    ForeignField{"routed_scaling_factor", kRouting, Neutral::one, kElsewhere},
    ForeignField{"router_jitter_noise", "noise in routing", Neutral::off, kUnknown},
    // Norms, activations, biases, scales.
    ForeignField{"norm_type", "other norms", Neutral::rms_norm},
    ForeignField{"normalization_type", "other norms", Neutral::rms_norm},
    ForeignField{"layer_norm_type", "other norms", Neutral::rms_norm},
    ForeignField{"layernorm_type", "other norms", Neutral::rms_norm},
    ForeignField{"use_parallel_residual", kParallel},
    ForeignField{"parallel_attn", kParallel},
    ForeignField{"hidden_act", kActivation, Neutral::silu, kUnknown},
    ForeignField{"mlp_hidden_act", kActivation, Neutral::silu},
    ForeignField{"activation_function", kActivation, Neutral::silu, kUnknown},
    ForeignField{"hidden_activation", kActivation, Neutral::silu, kUnknown},
    ForeignField{"attention_bias", kBiases, Neutral::off, kUnknown},
    ForeignField{"mlp_bias", kBiases, Neutral::off, kUnknown},
    ForeignField{"attention_out_bias", kBiases},
    ForeignField{"add_bias_linear", kBiases},
    ForeignField{"use_bias", kBiases},
    ForeignField{"lm_head_bias", kBiases},
    ForeignField{"residual_multiplier", kScales, Neutral::one, kElsewhere},
    ForeignField{"embedding_multiplier", kScales, Neutral::one, kElsewhere},
    ForeignField{"attention_in_multiplier", kScales, Neutral::one},
    ForeignField{"attention_out_multiplier", kScales, Neutral::one},
    ForeignField{"lm_head_multiplier", kScales, Neutral::one},
    ForeignField{"key_multiplier", kScales, Neutral::one},
    ForeignField{"mlp_multipliers", kScales, Neutral::one},
    ForeignField{"logits_scaling", kScales, Neutral::one, kElsewhere},
    ForeignField{"logit_scale", kScales, Neutral::one},
    ForeignField{"scale_emb", kScales, Neutral::one},
    ForeignField{"scale_depth", kScales, Neutral::one},
    ForeignField{"embedding_scale", kScales, Neutral::one},
    ForeignField{"attn_logit_softcapping", "attention logit softcaps", Neutral::off, kUnknown},
    ForeignField{"final_logit_softcapping", "output logit softcaps", Neutral::off, kUnknown},
    // Positions.
    ForeignField{"no_rope_layers", foreign_words::kNoRope, Neutral::one, kElsewhere},
    ForeignField{"no_rope_layer_interval", foreign_words::kNoRope, Neutral::off, kElsewhere},
    ForeignField{"nope_layer_interval", foreign_words::kNoRope},
    ForeignField{"alibi", kPositions},
    ForeignField{"use_alibi", kPositions},
    ForeignField{"position_embedding_type", kPositions, Neutral::rotary},
    ForeignField{"use_mrope", "multimodal RoPE"},
    ForeignField{"rotary_dim", kPartial, Neutral::off, kUnknown},
    ForeignField{"rotary_pct", kPartial, Neutral::one},
    ForeignField{"rotary_percent", kPartial, Neutral::one},
    ForeignField{"rope_pct", kPartial, Neutral::one},
    ForeignField{"partial_rotary_factor", kPartial, Neutral::one, kUnknown},
    ForeignField{"rope_ratio", "scaled RoPE", Neutral::one},
    // Outside the blocks.
    ForeignField{"num_nextn_predict_layers", kPrediction, Neutral::off, ForeignTo::left_out},
    ForeignField{"num_mtp_modules", kPrediction, Neutral::off, ForeignTo::left_out},
    ForeignField{"use_mtp", kPrediction, Neutral::off, ForeignTo::left_out},
    ForeignField{"mtp_*", kPrediction, Neutral::off, ForeignTo::left_out},
    ForeignField{"is_encoder_decoder", "an encoder"},
    ForeignField{"vision_config", foreign_words::kImages},
    ForeignField{"audio_config", kSound},
    ForeignField{"text_config", "a language model as one of several parts", Neutral::not_stated,
                 kUnknown},
    ForeignField{"llm_config", "a language model as one of several parts", Neutral::not_stated,
                 kUnknown},
};

/// Endings and parts of names: all kinds of dropout.
constexpr std::array<std::string_view, 3> kDropouts{"dropout", "pdrop", "layerdrop"};
constexpr ForeignField kDropout{"dropout", "dropout"};

/// Heads other than that of a language model.
constexpr std::array<std::string_view, 2> kOtherHeads{"classifier_dropout", "summary_"};

constexpr std::array<std::string_view, 10> kHarmlessBeginnings{
    "_name_or_path", "_attn_implementation", "_commit_hash",
    "_flash_attn",   "_from_model_config",   "forced_",
    "unsloth_",      "use_flash_",           "output_attn",
    "summary_"};
constexpr std::array<std::string_view, 3> kHarmlessEndings{"_token_id", "_token_ids",
                                                           "_token_index"};
constexpr std::array<std::string_view, 71> kHarmless{
    // The file's writer and its class.
    "architectures", "auto_map", "dtype", "model_type", "torch_dtype", "transformers_version",
    "tokenizer_class", "processor_class", "name_or_path", "finetuning_task", "task_specific_params",
    "id2label", "label2id", "num_labels", "problem_type",
    // Initialisation of weights.
    "initializer_range", "initializer_factor", "initializer_std", "init_std", "init_method_std",
    // Text generation, and results of a call.
    "attn_implementation", "bad_words_ids", "begin_suppress_tokens", "cache_implementation",
    "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty", "is_decoder", "length_penalty", "logits_to_keep",
    "max_length", "max_new_tokens", "min_length", "no_repeat_ngram_size", "num_beam_groups",
    "num_beams", "num_logits_to_keep", "num_return_sequences", "output_attentions",
    "output_hidden_states", "output_past", "output_scores", "prefix", "remove_invalid_values",
    "repetition_penalty", "return_dict", "return_dict_in_generate", "suppress_tokens",
    "temperature", "top_k", "top_p", "typical_p", "use_cache", "keys_to_ignore_at_inference",
    // Other implementations of the same computation.
    "chunk_size_feed_forward", "ep_size", "gradient_checkpointing", "pretraining_tp",
    "pruned_heads", "tf_legacy_loss", "tie_encoder_decoder", "torchscript", "use_bfloat16",
    "fused_kernels",
    // Other names of fields that are read (GPT-2, GPT-OSS), and limits of tokenizers.
    "experts_per_token", "initial_context_length", "model_max_length", "n_ctx", "seq_length"};

bool names_rms_norm(std::string_view name) {
  return joined_words(name, "-_ ").starts_with("rms") ||
         joined_words(name, "-_ ") == "llamarmsnorm";
}

bool is_one(const Json& value) { return value.is_number() && value == 1; }

/// Also as a letter of a pattern: "*" is an attention layer in Megatron-LM.
bool is_attention(const Json& value) {
  return value == "full_attention" || value == "sliding_attention" || value == "attention" ||
         value == "*";
}

bool all_are(const Json& list, bool (*predicate)(const Json&)) {
  return list.is_array() && std::ranges::all_of(list, predicate);
}

bool is_neutral_text(const std::string& text, Neutral neutral) {
  switch (neutral) {
    case Neutral::rms_norm: return names_rms_norm(text);
    case Neutral::rotary: return text == "rope" || text == "rotary";
    case Neutral::softmax: return text == "softmax";
    case Neutral::per_head: return text == "per_head";
    case Neutral::silu:
      return text == "silu" || text == "swish" || text == "swiglu" || text == "gelu_pytorch_tanh";
    case Neutral::attention: return text.find_first_not_of('*') == std::string::npos;
    default: return false;
  }
}

}  // namespace

bool ForeignField::matches(std::string_view field) const {
  return name.ends_with('*') ? field.starts_with(name.substr(0, name.size() - 1)) : field == name;
}

bool ForeignField::counts(const Json& value) const {
  if (value.is_null()) return false;
  if (neutral == Neutral::not_stated) return true;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value != 0 && !(neutral == Neutral::one && value == 1);
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return !text.empty() && !is_neutral_text(text, neutral);
  }
  if (value.empty()) return false;
  if (neutral == Neutral::one) return !all_are(value, is_one);
  if (neutral == Neutral::attention) return !all_are(value, is_attention);
  if (neutral == Neutral::not_enabled)
    return value.is_array() || value.value("enabled", Json(true)) != false;
  return true;
}

std::span<const ForeignField> foreign_fields() { return kForeign; }

const ForeignField* find_foreign_field(std::string_view field) {
  const auto* const row =
      std::ranges::find_if(kForeign, [&](const ForeignField& each) { return each.matches(field); });
  if (row != kForeign.end()) return row;
  const auto is_in_name = [&](std::string_view part) {
    return field.find(part) != std::string_view::npos;
  };
  const bool other_head = std::ranges::any_of(
      kOtherHeads, [&](std::string_view beginning) { return field.starts_with(beginning); });
  return !other_head && std::ranges::any_of(kDropouts, is_in_name) ? &kDropout : nullptr;
}

bool is_harmless_field(std::string_view field) {
  return std::ranges::find(kHarmless, field) != kHarmless.end() ||
         field.starts_with(kOtherHeads.front()) ||
         std::ranges::any_of(kHarmlessBeginnings,
                             [&](std::string_view part) { return field.starts_with(part); }) ||
         std::ranges::any_of(kHarmlessEndings,
                             [&](std::string_view part) { return field.ends_with(part); });
}

}  // namespace mfsdp
