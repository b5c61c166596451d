#include "core/model/family.hpp"

namespace mfsdp {
namespace {

constexpr std::array kFamilies{
    HfFamily{.model_type = "gemma",
             .kv_heads_default_to_heads = true,
             .activation = Activation::gelu_tanh,
             .scaled_embedding = true,
             .zero_centered_norms = true,
             .tied_embeddings = true},
    HfFamily{.model_type = "gemma2",
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
    HfFamily{.model_type = "llama", .kv_heads_default_to_heads = true},
    HfFamily{.model_type = "mistral", .sliding = SlidingRule::all},
    HfFamily{.model_type = "phi3",
             .kv_heads_default_to_heads = true,
             .sliding = SlidingRule::all,
             .sliding_window = 0,
             .partial_rope = true,
             .fused_weights = true},
    HfFamily{.model_type = "qwen2", .qkv_bias = true, .sliding = SlidingRule::switched},
    HfFamily{
        .model_type = "qwen3", .qk_norm = true, .head_dim = 128, .sliding = SlidingRule::switched},
};

}  // namespace

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
