// Families of models: which recipe computes their blocks, and what Hugging Face's classes of a
// model_type fix or assume beside config.json.
//
// To add a family that computes as one of these do: its row in family.cpp; what not_modelled.cpp
// said of it goes. One that computes otherwise has a name here and a recipe in core/recipe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// Whose recipe (core/recipe/recipe.hpp) a model follows.
enum class Family {
  llama  ///< RMSNorm before grouped-query attention with RoPE, and before SwiGLU
};

template <>
struct Names<Family> {
  static constexpr std::array<std::string_view, 1> values{"llama"};
};

/// What the MLP does to its gate before it multiplies: x * sigmoid(x), or GELU in its tanh form.
enum class Activation { silu, gelu_tanh };

template <>
struct Names<Activation> {
  static constexpr std::array<std::string_view, 2> values{"silu", "gelu_tanh"};
};

/// Which layers' attention has a window, where config.json does not name them by layer_types.
enum class SlidingRule {
  none,
  all,       ///< whatever layer_types says
  switched,  ///< where use_sliding_window is on: those from max_window_layers on
  pattern    ///< all but every n-th
};

/// A model_type of Hugging Face.
struct HfFamily {
  std::string_view model_type;
  Family family = Family::llama;
  bool qkv_bias = false;
  bool qk_norm = false;
  /// Where config.json has no head_dim; 0 means hidden_size / num_attention_heads.
  std::int64_t head_dim = 0;
  /// An absent num_key_value_heads means num_attention_heads. Elsewhere it means a constant that
  /// fits one model of the family, so there it has to be stated.
  bool kv_heads_default_to_heads = false;
  // Numbers stand for what config.json does not say.
  SlidingRule sliding = SlidingRule::none;
  std::int64_t sliding_window = 4096;   ///< tokens; 0: no window
  std::int64_t max_window_layers = 28;  ///< of rule `switched`
  std::int64_t sliding_pattern = 0;     ///< n of rule `pattern`
  std::int64_t rope_theta = 0;          ///< 0 means 10000
  std::int64_t local_rope_theta = 0;    ///< of layers that slide; 0: they turn as all others
  bool partial_rope = false;            ///< RoPE may turn a part of each head
  bool scaled_scores = false;           ///< has soft caps and query_pre_attn_scalar
  std::int64_t score_cap = 0;           ///< 0: none
  std::int64_t logit_cap = 0;           ///< 0: none
  std::int64_t query_scalar = 0;        ///< 0 means head_dim
  Activation activation = Activation::silu;
  bool scaled_embedding = false;  ///< as ModelShape has these three
  bool output_norms = false;
  bool zero_centered_norms = false;
  bool tied_embeddings = false;  ///< where config.json does not say
  /// Checkpoints have query, key and value as one tensor, gate and up as another.
  bool fused_weights = false;
};

/// All that are modelled, sorted by model_type.
[[nodiscard]] std::span<const HfFamily> hf_families();

/// "gemma, gemma2, gemma3_text, llama, mistral, phi3, qwen2 or qwen3".
[[nodiscard]] std::string hf_family_list();

}  // namespace mfsdp
