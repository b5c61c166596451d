#include "core/model/family.hpp"

namespace mfsdp {
namespace {

constexpr std::array kTraits{
    FamilyTraits{.family = Family::llama},
    FamilyTraits{.family = Family::gpt2,
                 .layer_norms = true,
                 .biases = true,
                 .gated = false,
                 .rotates = false,
                 .transposed_weights = true,
                 .names = {.embedding = "transformer.wte",
                           .positions = "transformer.wpe",
                           .final_norm = "transformer.ln_f",
                           .blocks = "transformer.h.",
                           .input_norm = "ln_1",
                           .attention = "attn.",
                           .qkv = "c_attn",
                           .attention_out = "c_proj",
                           .post_norm = "ln_2",
                           .gate_up = "c_fc",
                           .down = "c_proj"}},
    FamilyTraits{.family = Family::olmo2, .input_norms = false, .whole_qk_norms = true},
    FamilyTraits{.family = Family::mixtral,
                 .only_experts = true,
                 .names = {.mlp = "block_sparse_moe.",
                           .expert_gate = "w1",
                           .expert_up = "w3",
                           .expert_down = "w2"}},
    FamilyTraits{.family = Family::olmoe, .whole_qk_norms = true, .only_experts = true},
};

constexpr HfNames kGemmaNames{.newer_activation = "hidden_activation"};

constexpr std::array kFamilies{
    HfFamily{.model_type = "gemma",
             .names = kGemmaNames,
             .kv_heads_default_to_heads = true,
             .activation = Activation::gelu_tanh,
             .scaled_embedding = true,
             .zero_centered_norms = true,
             .tied_embeddings = true},
    HfFamily{.model_type = "gemma2",
             .names = kGemmaNames,
             .sliding = SlidingRule::pattern,
             .sliding_pattern = 2,
             .scaled_scores = true,
             .score_cap = 50,
             .logit_cap = 30,
             .query_scalar = 256,
             .activation = Activation::gelu_tanh,
             .scaled_embedding = true,
             .output_norms = true,
             .zero_centered_norms = true,
             .tied_embeddings = true},
    HfFamily{.model_type = "gemma3_text",
             .names = kGemmaNames,
             .qk_norm = true,
             .sliding = SlidingRule::pattern,
             .sliding_pattern = 6,
             .rope_theta = 1'000'000,
             .local_rope_theta = 10'000,
             .scaled_scores = true,
             .query_scalar = 256,
             .activation = Activation::gelu_tanh,
             .scaled_embedding = true,
             .output_norms = true,
             .zero_centered_norms = true,
             .tied_embeddings = true},
    HfFamily{.model_type = "gpt2",
             .family = Family::gpt2,
             .names = {.hidden = "n_embd",
                       .intermediate = "n_inner",
                       .layers = "n_layer",
                       .heads = "n_head",
                       .positions = "n_positions",
                       .epsilon = "layer_norm_epsilon",
                       .activation = "activation_function"},
             .intermediate_times = 4,
             .qkv_bias = true,
             .kv_heads_default_to_heads = true,
             .activation = Activation::gelu_tanh,
             .tied_embeddings = true,
             .fused_weights = true},
    HfFamily{.model_type = "llama", .kv_heads_default_to_heads = true},
    HfFamily{.model_type = "mistral", .sliding = SlidingRule::all},
    HfFamily{.model_type = "mixtral",
             .family = Family::mixtral,
             .names = {.experts = "num_local_experts"},
             .sliding = SlidingRule::all,
             .sliding_window = 0,
             .rope_theta = 1'000'000,
             .always_normalises = true,
             .aux_loss = {1, 1000}},
    HfFamily{.model_type = "olmo2",
             .family = Family::olmo2,
             .qk_norm = true,
             .kv_heads_default_to_heads = true,
             .output_norms = true},
    HfFamily{.model_type = "olmoe",
             .family = Family::olmoe,
             .names = {.experts = "num_experts"},
             .qk_norm = true,
             .kv_heads_default_to_heads = true,
             .aux_loss = {1, 100}},
    HfFamily{.model_type = "phi3",
             .kv_heads_default_to_heads = true,
             .sliding = SlidingRule::all,
             .sliding_window = 0,
             .partial_rope = true,
             .fused_weights = true},
    HfFamily{.model_type = "qwen2", .qkv_bias = true, .sliding = SlidingRule::switched},
    HfFamily{.model_type = "qwen2_moe",
             .names = {.experts = "num_experts",
                       .expert_intermediate = "moe_intermediate_size",
                       .shared_intermediate = "shared_expert_intermediate_size"},
             .qkv_bias = true,
             .sliding = SlidingRule::switched,
             .dense_layers = true,
             .aux_loss = {1, 1000}},
    HfFamily{
        .model_type = "qwen3", .qk_norm = true, .head_dim = 128, .sliding = SlidingRule::switched},
    HfFamily{.model_type = "qwen3_moe",
             .names = {.experts = "num_experts", .expert_intermediate = "moe_intermediate_size"},
             .qk_norm = true,
             .sliding = SlidingRule::switched,
             .dense_layers = true,
             .aux_loss = {1, 1000}},
};

}  // namespace

const FamilyTraits& traits_of(Family family) {
  return kTraits.at(static_cast<std::size_t>(family));
}

std::span<const HfFamily> hf_families() { return kFamilies; }

std::string hf_family_list() {
  std::string text;
  for (std::size_t i = 0; i < kFamilies.size(); ++i) {
    if (i > 0) text += i + 1 < kFamilies.size() ? ", " : " or ";
    text += kFamilies.at(i).model_type;
  }
  return text;
}

}  // namespace mfsdp
