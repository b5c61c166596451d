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
  bool slides = false;  ///< where config.json does not say
  /// That many tokens at a time where config.json does not say.
  std::int64_t sliding_window = 4096;
};

/// All that are modelled, sorted by model_type.
[[nodiscard]] std::span<const HfFamily> hf_families();

/// "llama, mistral, qwen2 or qwen3".
[[nodiscard]] std::string hf_family_list();

}  // namespace mfsdp
