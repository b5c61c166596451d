// Small configurations for tests.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/config.hpp"

namespace mfsdp::test {

/// A model of a few thousand parameters.
inline ModelShape small_shape(std::int64_t layers = 2) {
  ModelShape shape;
  shape.vocab = 24;
  shape.hidden = 8;
  shape.layers = layers;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 4;
  shape.intermediate = 12;
  shape.max_seq_len = 64;
  return shape;
}

inline PlanConfig small_config(std::int64_t ranks = 4, std::int64_t layers = 2) {
  PlanConfig config;
  config.model = small_shape(layers);
  config.mesh = data_parallel_mesh(1, ranks);
  config.seq_len = 16;
  config.logits_chunk = 8;
  return config;
}

/// The same with FP8 GEMMs in all blocks, whose sizes are multiples of 16.
inline PlanConfig fp8_config(std::int64_t ranks = 2, std::int64_t layers = 2) {
  PlanConfig config = small_config(ranks, layers);
  config.model.hidden = 32;
  config.model.head_dim = 8;
  config.model.intermediate = 48;
  config.fp8 = Fp8Recipe::current;
  return config;
}

/// The same with another recipe, and sizes that are whole blocks of any recipe.
inline PlanConfig block_config(Fp8Recipe recipe, std::int64_t ranks = 2, std::int64_t layers = 2) {
  PlanConfig config = fp8_config(ranks, layers);
  config.model.hidden = config.model.intermediate = 128;
  config.model.max_seq_len = config.seq_len = 128;
  config.model.heads = 2;
  config.model.kv_heads = 1;
  config.model.head_dim = 128;
  config.fp8 = recipe;
  return config;
}

/// Embedding, one block and the head on two ranks with two gradient slots: small enough for a
/// search through all interleavings. Eight variants: strategies, one or two microbatches.
inline PlanConfig three_units(int variant) {
  PlanConfig config = small_config(2, 1);
  config.logits_chunk = 16;
  config.strategy = static_cast<Strategy>(variant % 4);
  config.microbatches = 1 + variant / 4 % 2;
  if (variant % 3 == 0) config.clip = Rational{0, 1};
  return config;
}

/// The shape with experts in place of dense MLPs, but for those layers'.
inline void add_experts(ModelShape& model, std::int64_t experts, std::int64_t per_token,
                        std::vector<std::int64_t> dense_layers = {}) {
  model.experts = experts;
  model.experts_per_token = per_token;
  model.expert_intermediate = 5;
  model.dense_layers = std::move(dense_layers);
  if (model.dense_layers.empty()) model.intermediate = 0;
  model.output_norms = model.fused_weights = false;
  model.residual_multiplier = {0, 1};
  model.activation = Activation::silu;
}

/// The shape as one of that family: with what its blocks fix, without what they lack.
inline void make_family(ModelShape& model, Family family) {
  model.family = family;
  if (family != Family::llama)
    model.embedding_multiplier = model.residual_multiplier = model.logit_multiplier = {0, 1};
  if (family == Family::olmo2) model.output_norms = true;
  if (model.traits().only_experts) add_experts(model, 4, 2);
  if (family == Family::deepseek) {
    if (model.experts == 0) add_experts(model, 4, 2);
    model.kv_heads = model.heads;
    model.qkv_bias = model.qk_norm = model.output_norms = model.fused_weights = false;
    model.zero_centered_norms = false;
    model.activation = Activation::silu;
    model.head_dim = 4;
    model.rotary_dim = 2;
    model.value_dim = 3;
    model.kv_latent = 5;
    model.nope_layers.clear();
    model.query_latent = 6;
  }
  if (family == Family::minimax_m2 || family == Family::glm4_moe) {
    if (model.experts == 0) add_experts(model, 4, 2);
    model.sigmoid_routing = true;
    if (family == Family::minimax_m2) model.qk_norm = model.normalised_routing = true;
    if (family == Family::glm4_moe) model.shared_intermediate = model.expert_intermediate;
  }
  if (family == Family::gpt_oss) {
    model.qkv_bias = true;
    model.qk_norm = false;
    model.normalised_routing = true;
    model.swiglu_alpha = {851, 500};
    model.swiglu_limit = {7, 1};
  }
  if (family != Family::gpt2) return;
  model.qk_norm = model.output_norms = model.zero_centered_norms = model.scaled_embedding = false;
  model.activation = Activation::gelu_tanh;
  model.fused_weights = true;
  model.rope_theta = {10000, 1};
  model.local_rope_theta = {0, 1};
  model.nope_layers.clear();
  model.rotary_dim = 0;
  model.rope_scaling = {};
}

/// Parts of names as Llama's parameters have them, in the family's own words.
inline std::vector<std::string> names_in(Family family, std::vector<std::string> parts) {
  if (traits_of(family).only_experts)
    for (std::string& part : parts)
      if (part.starts_with("mlp"))
        part = "experts." + part.substr(std::min(part.size(), std::size_t{4}));
  if (family == Family::deepseek)
    for (std::string& part : parts)
      if (part == "qkv") part = "kv_b_proj";
  if (family != Family::gpt2) return parts;
  for (std::string& part : parts)
    for (const auto& [llama, gpt2] : {std::pair<std::string, std::string>{"embed_tokens", "wte"},
                                      {"layernorm", "ln_"},
                                      {"layers.0.", "h.0."},
                                      {"mlp.down", "mlp.c_proj"},
                                      {"o_proj", "attn.c_proj"},
                                      {"qkv", "c_attn"}})
      if (const std::size_t at = part.find(llama); at != std::string::npos)
        part.replace(at, llama.size(), gpt2);
  return parts;
}

}  // namespace mfsdp::test
