#include "core/model/model_shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace mfsdp {
namespace {

struct Bounded {
  std::string_view field;
  std::int64_t value;
  std::int64_t limit;
};

Result<void> check_ranges(const ModelShape& shape, const std::string& where) {
  const bool some_dense = shape.experts == 0 || !shape.dense_layers.empty();
  const std::array fields{
      Bounded{"hidden_size", shape.hidden, ShapeLimits::dim},
      Bounded{"intermediate_size", some_dense ? shape.intermediate : 1, ShapeLimits::dim},
      Bounded{"vocab_size", shape.vocab, ShapeLimits::dim},
      Bounded{"max_position_embeddings", shape.max_seq_len, ShapeLimits::dim},
      Bounded{"num_hidden_layers", shape.layers, ShapeLimits::layers},
      Bounded{"num_attention_heads", shape.heads, ShapeLimits::heads},
      Bounded{"num_key_value_heads", shape.kv_heads, ShapeLimits::heads},
      Bounded{"head_dim", shape.head_dim, ShapeLimits::heads},
  };
  for (const auto& [field, value, limit] : fields)
    if (value < 1 || value > limit)
      return fail(where,
                  fmt::format("{}: expected an integer from 1 to {}, got {}", field, limit, value));
  return {};
}

Result<void> check_heads(const ModelShape& shape, const std::string& where) {
  if (shape.heads % shape.kv_heads != 0)
    return fail(where, fmt::format("num_key_value_heads: expected a divisor of num_attention_heads "
                                   "({}), got {}",
                                   shape.heads, shape.kv_heads));
  if (shape.head_dim % 2 != 0)
    return fail(where, fmt::format("head_dim: expected an even number (RoPE rotates pairs), got {}",
                                   shape.head_dim));
  return {};
}

/// Checks that layers ascend and exist.
Result<void> check_layers(const std::vector<std::int64_t>& layers, const ModelShape& shape,
                          std::string_view field, const std::string& where) {
  std::int64_t last = -1;
  for (const std::int64_t layer : layers) {
    if (layer <= last || layer >= shape.layers)
      return fail(where, fmt::format("{}: expected layers from 0 to {}, ascending, got {}", field,
                                     shape.layers - 1, layer));
    last = layer;
  }
  return {};
}

/// Fields of experts are set together or not at all.
Result<void> check_experts(const ModelShape& shape, const std::string& where) {
  const auto wrong = [&](std::string_view field, std::string_view expected, std::int64_t got) {
    return fail(where, fmt::format("{}: expected {}, got {}", field, expected, got));
  };
  if (shape.experts < 0 || shape.experts > ShapeLimits::experts)
    return wrong("num_experts", fmt::format("an integer up to {}", ShapeLimits::experts),
                 shape.experts);
  if (shape.experts == 0) {
    const bool none = shape.experts_per_token == 0 && shape.expert_intermediate == 0 &&
                      shape.dense_layers.empty() && !shape.normalised_routing &&
                      shape.shared_intermediate == 0 && shape.router_aux_loss == Rational{} &&
                      shape.router_z_loss == Rational{} && shape.swiglu_limit == Rational{} &&
                      shape.swiglu_alpha == Rational{} && !shape.sigmoid_routing &&
                      shape.router_groups == 0 && shape.chosen_groups == 0 &&
                      shape.routed_scale == Rational{};
    return none
               ? Result<void>{}
               : wrong("num_experts", "a number of experts, as other fields of experts are set", 0);
  }
  if (shape.experts_per_token < 1 || shape.experts_per_token > shape.experts)
    return wrong("num_experts_per_tok", fmt::format("an integer from 1 to {}", shape.experts),
                 shape.experts_per_token);
  if (shape.expert_intermediate < 1 || shape.expert_intermediate > ShapeLimits::dim)
    return wrong("moe_intermediate_size", fmt::format("an integer from 1 to {}", ShapeLimits::dim),
                 shape.expert_intermediate);
  if (shape.shared_intermediate < 0 || shape.shared_intermediate > ShapeLimits::dim)
    return wrong("shared_expert_intermediate_size",
                 fmt::format("an integer from 0 to {}", ShapeLimits::dim),
                 shape.shared_intermediate);
  const std::int64_t groups = shape.router_groups;
  const std::int64_t of_group =
      groups == 0 ? shape.experts : shape.experts / std::max<std::int64_t>(groups, 1);
  if (groups != 0 && (groups < 2 || shape.experts % groups != 0))
    return wrong("n_group", fmt::format("0, or a divisor of {} experts", shape.experts), groups);
  if (groups != 0 && shape.sigmoid_routing && of_group < 2)
    return wrong("n_group", "groups of two experts or more", groups);
  if (shape.chosen_groups < (groups == 0 ? 0 : 1) ||
      shape.chosen_groups > std::max<std::int64_t>(groups - 1, 0))
    return wrong("topk_group", fmt::format("fewer than the {} groups", groups),
                 shape.chosen_groups);
  if (groups != 0 && checked_mul(shape.chosen_groups, of_group) < shape.experts_per_token)
    return wrong("topk_group",
                 fmt::format("groups of {} experts at least", shape.experts_per_token),
                 shape.chosen_groups);
  if (shape.dense_layers.empty() && shape.intermediate != 0)
    return wrong("intermediate_size", "0, as no layer is dense", shape.intermediate);
  MFSDP_TRY(check_layers(shape.dense_layers, shape, "mlp_only_layers", where));
  if (std::ssize(shape.dense_layers) == shape.layers)
    return wrong("mlp_only_layers", "a layer with experts", shape.layers);
  for (const auto& [field, value] :
       {std::pair<std::string_view, const Rational&>{"router_aux_loss_coef", shape.router_aux_loss},
        {"router_z_loss_coef", shape.router_z_loss},
        {"routed_scaling_factor", shape.routed_scale},
        {"swiglu_limit", shape.swiglu_limit},
        {"swiglu_alpha", shape.swiglu_alpha}})
    if (value.num < 0 || (value.num == 0 ? value.den != 1 : value.den < 1))
      return fail(where,
                  fmt::format("{}: expected a number above 0, got {}", field, value.value()));
  if ((shape.swiglu_limit.num == 0) != (shape.swiglu_alpha.num == 0))
    return fail(where, "swiglu_limit: expected swiglu_alpha too, or neither");
  return {};
}

bool positive(const Rational& value) { return value.den > 0 && value.num > 0; }

/// The original context of a scaling.
Result<void> check_original(const RopeScaling& scaling, const std::string& where) {
  if (scaling.original_max_seq_len < 1 || scaling.original_max_seq_len > ShapeLimits::dim)
    return fail(where, fmt::format("rope_scaling.original_max_position_embeddings: expected an "
                                   "integer from 1 to {}, got {}",
                                   ShapeLimits::dim, scaling.original_max_seq_len));
  return {};
}

/// Checks that there is one positive factor for each frequency.
Result<void> check_factors(const std::vector<Rational>& factors, std::int64_t frequencies,
                           std::string_view field, const std::string& where) {
  if (std::ssize(factors) != frequencies)
    return fail(where, fmt::format("rope_scaling.{}: expected {} numbers, one for each frequency, "
                                   "got {}",
                                   field, frequencies, factors.size()));
  if (!std::ranges::all_of(factors, positive))
    return fail(where, fmt::format("rope_scaling.{}: expected numbers above 0", field));
  return {};
}

/// The range in which frequencies are blended. Its ends may be equal, as in Kimi-K2 and Llama 4: then
/// nothing is blended.
Result<void> check_blend(const RopeScaling& scaling, const std::string& where) {
  const bool is_yarn = scaling.kind == RopeKind::yarn;
  const std::string_view low = is_yarn ? "beta_slow" : "low_freq_factor";
  const std::string_view high = is_yarn ? "beta_fast" : "high_freq_factor";
  const double begin = scaling.low_freq_factor.value();
  const double end = scaling.high_freq_factor.value();
  if (!positive(scaling.low_freq_factor))
    return fail(where,
                fmt::format("rope_scaling.{}: expected a number above 0, got {}", low, begin));
  if (positive(scaling.high_freq_factor) && end >= begin) return {};
  return fail(where, fmt::format("rope_scaling.{}: expected a number of at least {} ({}), got {}",
                                 high, low, begin, end));
}

Result<void> check_scaling(const ModelShape& shape, const std::string& where) {
  const RopeScaling& scaling = shape.rope_scaling;
  if (scaling == RopeScaling{}) return {};
  if (!positive(scaling.factor) || scaling.factor.value() < 1.0)
    return fail(where, fmt::format("rope_scaling.factor: expected a number of at least 1, got {}",
                                   scaling.factor.value()));
  if (scaling.attention_factor.num < 0 || scaling.attention_factor.den < 1)
    return fail(where, "rope_scaling.attention_factor: expected a number above 0");
  if (scaling.kind != RopeKind::longrope &&
      !(scaling.short_factors.empty() && scaling.long_factors.empty()))
    return fail(where, "rope_scaling.short_factor: expected it for longrope only");
  if (scaling.exact_range && scaling.kind != RopeKind::yarn)
    return fail(where, "rope_scaling.truncate: expected it for yarn only");
  if (scaling.kind == RopeKind::linear) return {};
  if (scaling.kind == RopeKind::longrope) {
    const std::int64_t frequencies = shape.rotated_dim() / 2;
    MFSDP_TRY(check_factors(scaling.short_factors, frequencies, "short_factor", where));
    MFSDP_TRY(check_factors(scaling.long_factors, frequencies, "long_factor", where));
    return check_original(scaling, where);
  }
  MFSDP_TRY(check_blend(scaling, where));
  return check_original(scaling, where);
}

Result<void> check_reals(const ModelShape& shape, const std::string& where) {
  if (!positive(shape.rms_norm_eps) || shape.rms_norm_eps.value() >= 1.0)
    return fail(where, fmt::format("rms_norm_eps: expected a number above 0 and below 1, got {}",
                                   shape.rms_norm_eps.value()));
  if (!positive(shape.rope_theta) || shape.rope_theta.value() < 1.0)
    return fail(where, fmt::format("rope_theta: expected a number of at least 1, got {}",
                                   shape.rope_theta.value()));
  return check_scaling(shape, where);
}

/// Sliding windows, logit softcaps, and the elements that RoPE rotates.
Result<void> check_attention(const ModelShape& shape, const std::string& where) {
  // A whole head is stated as 0, so that equal models have equal shapes.
  if (shape.rotary_dim < 0 || shape.rotary_dim >= shape.head_dim || shape.rotary_dim % 2 != 0)
    return fail(where, fmt::format("partial_rotary_factor: expected an even number of elements, "
                                   "fewer than a head's {}, got {}",
                                   shape.head_dim, shape.rotary_dim));
  if (shape.sliding_window < 0 || shape.sliding_window > ShapeLimits::dim ||
      (shape.sliding_window == 0) != shape.sliding_layers.empty())
    return fail(where,
                fmt::format("sliding_window: expected an integer from 1 to {} if layers have "
                            "a sliding window, otherwise none, got {}",
                            ShapeLimits::dim, shape.sliding_window));
  MFSDP_TRY(check_layers(shape.sliding_layers, shape, "layer_types", where));
  MFSDP_TRY(check_layers(shape.shared_index_layers, shape, "indexer_types", where));
  MFSDP_TRY(check_layers(shape.nope_layers, shape, "no_rope_layers", where));
  for (const auto& [field, value] :
       {std::pair<std::string_view, std::int64_t>{"index_n_heads", shape.index_heads},
        {"index_head_dim", shape.index_dim}})
    if (value < 0 || value > ShapeLimits::heads)
      return fail(where, fmt::format("{}: expected an integer up to {}, got {}", field,
                                     ShapeLimits::heads, value));
  for (const auto& [field, value] :
       {std::pair<std::string_view, const Rational&>{"query_pre_attn_scalar", shape.query_scalar},
        {"attn_logit_softcapping", shape.score_cap},
        {"final_logit_softcapping", shape.logit_cap},
        {"embedding_multiplier", shape.embedding_multiplier},
        {"residual_multiplier", shape.residual_multiplier},
        {"logits_scaling", shape.logit_multiplier},
        {"rope_local_base_freq", shape.local_rope_theta}})
    if (value.num < 0 || (value.num == 0 ? value.den != 1 : value.den < 1))
      return fail(where,
                  fmt::format("{}: expected a number above 0, got {}", field, value.value()));
  if (shape.local_rope_theta.num != 0 && shape.local_rope_theta.value() < 1.0)
    return fail(where, fmt::format("rope_local_base_freq: expected a number of at least 1, got {}",
                                   shape.local_rope_theta.value()));
  if (shape.local_rope_theta.num != 0 && shape.sliding_layers.empty())
    return fail(where, "rope_local_base_freq: expected layers with a sliding window");
  return {};
}

/// Shapes that a family's recipe has kernels for. Its config.json has no fields for these.
Result<void> check_family(const ModelShape& shape, const std::string& where) {
  const FamilyTraits& traits = shape.traits();
  struct Need {
    bool met;
    std::string_view what;
  };
  const bool plain_rope = shape.rope_theta == Rational{10000, 1} && shape.rotary_dim == 0 &&
                          shape.local_rope_theta.num == 0 && shape.rope_scaling == RopeScaling{};
  const std::array needs{
      Need{traits.input_norms || shape.output_norms, "norms of what attention and MLP add"},
      Need{traits.rotates || !shape.qk_norm, "no norms of query and key, which come with RoPE"},
      Need{traits.rotates || plain_rope, "no RoPE and no settings of it"},
      Need{shape.nope_layers.empty() ||
               (traits.rotates && !traits.latent_attention && shape.local_rope_theta.num == 0),
           "no layers without RoPE"},
      Need{traits.rotates || shape.embedding_scale(DType::fp32).num == 0,
           "an embedding that is not scaled"},
      Need{shape.embedding_multiplier.num == 0 || !shape.scaled_embedding,
           "one factor of the embedding"},
      Need{shape.residual_multiplier.num == 0 ||
               (traits.input_norms && !traits.biases && !shape.output_norms && shape.experts == 0),
           "no factor of what attention and MLP add"},
      Need{!traits.layer_norms || !(shape.output_norms || shape.zero_centered_norms),
           "layer norms before attention and MLP only"},
      Need{traits.gated || shape.activation == Activation::gelu_tanh, "GELU in its tanh form"},
      Need{traits.gated || shape.fused_weights, "one tensor of query, key and value"},
      Need{!traits.only_experts || (shape.experts != 0 && shape.dense_layers.empty()),
           "experts in every layer"},
      Need{shape.family != Family::glm4_moe || shape.experts != 0, "experts"},
      Need{shape.experts == 0 || (traits.gated && traits.input_norms && !shape.output_norms),
           "no experts, or norms before attention and MLP only"},
      Need{shape.experts == 0 || shape.activation == Activation::silu, "experts with SwiGLU"},
      Need{shape.experts == 0 || !shape.fused_weights, "no fused weights with experts"},
      Need{traits.latent_attention == (shape.kv_latent != 0), "a latent vector of keys and values"},
      Need{shape.kv_latent >= 0 && shape.query_latent >= 0 && shape.value_dim >= 0 &&
               (traits.latent_attention || (shape.query_latent == 0 && shape.value_dim == 0)),
           "no latent vector of queries, and values as wide as keys"},
      Need{!traits.latent_attention || (shape.kv_heads == shape.heads && shape.rotary_dim != 0 &&
                                        shape.experts != 0 && !shape.qkv_bias && !shape.qk_norm &&
                                        !shape.fused_weights && !shape.zero_centered_norms),
           "experts, and a key for each head with a rotated part"},
      Need{!(traits.latent_attention || shape.sigmoid_routing || shape.router_groups != 0) ||
               (shape.router_aux_loss.num == 0 && shape.router_z_loss.num == 0),
           "no losses of the router"},
      Need{shape.latent_norm_eps.num == 0 ||
               (traits.latent_attention && positive(shape.latent_norm_eps) &&
                shape.query_latent != shape.hidden),
           "latent vectors with norms of their own"},
      Need{shape.index_heads == 0
               ? shape.index_dim == 0 && shape.shared_index_layers.empty()
               : shape.index_heads > 0 && shape.index_dim > 0 && traits.latent_attention &&
                     shape.query_latent != 0 && shape.has_indexer(0),
           "an indexer beside a latent vector of queries, in the first layer too"},
      Need{!traits.sinks || (shape.qkv_bias && !shape.qk_norm),
           "biases of query, key and value, and no norms of them"},
      Need{shape.shared_intermediate == 0 || shape.swiglu_limit.num == 0,
           "no shared expert with a clamped SwiGLU"},
  };
  for (const Need& need : needs)
    if (!need.met)
      return fail(where, fmt::format("family {}: expected {}", to_string(shape.family), need.what));
  return {};
}

/// The indexers of all layers that have one of their own.
std::int64_t indexer_elements(const ModelShape& shape) {
  const std::int64_t queries = product_of(shape.index_heads, shape.index_dim, shape.query_latent);
  const std::int64_t rest =
      checked_add(checked_mul(checked_add(shape.index_dim, shape.index_heads), shape.hidden),
                  checked_mul(2, shape.index_dim));
  return checked_mul(checked_add(queries, rest),
                     shape.layers - std::ssize(shape.shared_index_layers));
}

/// Adds up the parameters part by part, so that the error can name the field that is too large.
Result<void> check_count(const ModelShape& shape, const std::string& where) {
  std::string_view field = "intermediate_size";
  const auto too_many = [&] {
    return fail(where, fmt::format("{}: expected fewer than 2^53 parameters in all", field));
  };
  try {
    const std::int64_t dense = shape.experts == 0 ? shape.layers : std::ssize(shape.dense_layers);
    std::int64_t total = dense == 0 ? 0 : block_elements(shape);
    if (total >= ShapeLimits::parameters) return too_many();
    if (shape.experts != 0 && !shape.traits().only_experts) field = "moe_intermediate_size";
    const std::int64_t of_experts = dense == shape.layers ? 0 : block_elements(shape, true);
    if (of_experts >= ShapeLimits::parameters) return too_many();
    field = "num_hidden_layers";
    total = checked_add(checked_mul(total, dense), checked_mul(of_experts, shape.layers - dense));
    if (total >= ShapeLimits::parameters) return too_many();
    field = "vocab_size";
    const std::int64_t table = checked_mul(shape.vocab, shape.hidden);
    total = checked_add(total, checked_mul(table, shape.tied_embeddings ? 1 : 2));
    if (!shape.traits().rotates)
      total = checked_add(total, checked_mul(shape.max_seq_len, shape.hidden));
    if (shape.index_heads != 0) total = checked_add(total, indexer_elements(shape));
    if (checked_add(total, shape.hidden) >= ShapeLimits::parameters) return too_many();
  } catch (const OverflowError&) {
    return too_many();
  }
  return {};
}

}  // namespace

namespace {

/// Matrices from rows to latent vectors, and from these to queries, keys and values.
std::int64_t latent_matrix_elements(const ModelShape& shape) {
  const std::int64_t queries = checked_mul(shape.heads, shape.head_dim);
  const std::int64_t q = shape.query_latent == 0
                             ? checked_mul(queries, shape.hidden)
                             : checked_mul(shape.query_latent, checked_add(queries, shape.hidden));
  const std::int64_t down =
      checked_mul(checked_add(shape.kv_latent, shape.rotary_dim), shape.hidden);
  const std::int64_t up = product_of(shape.heads, shape.key_value_dim(), shape.kv_latent);
  return checked_add(q, checked_add(down, up));
}

}  // namespace

std::int64_t block_matrix_elements(const ModelShape& shape, bool has_experts) {
  const std::int64_t all_heads = checked_add(shape.heads, checked_mul(2, shape.kv_heads));
  const std::int64_t qkv = shape.traits().latent_attention
                               ? latent_matrix_elements(shape)
                               : product_of(all_heads, shape.head_dim, shape.hidden);
  const std::int64_t out = product_of(shape.hidden, shape.heads, shape.value_head_dim());
  std::int64_t mlp = product_of(shape.traits().gated ? 3 : 2, shape.hidden, shape.intermediate);
  if (has_experts) {
    mlp = product_of(3, shape.experts, shape.hidden, shape.expert_intermediate);
    mlp = checked_add(mlp, product_of(shape.experts, shape.hidden));
    // A shared expert may have a gate, which is one row.
    if (shape.shared_intermediate != 0)
      mlp = checked_add(
          mlp, checked_mul(3 * shape.shared_intermediate + (shape.has_gated_shared() ? 1 : 0),
                           shape.hidden));
  }
  return checked_add(checked_add(qkv, out), mlp);
}

std::int64_t block_elements(const ModelShape& shape, bool has_experts) {
  const FamilyTraits& traits = shape.traits();
  std::int64_t total = block_matrix_elements(shape, has_experts);
  const auto add = [&](std::int64_t vectors, std::int64_t elements) {
    total = checked_add(total, checked_mul(vectors, elements));
  };
  const std::int64_t norms = (traits.input_norms ? 2 : 0) + (shape.output_norms ? 2 : 0);
  add(traits.layer_norms ? 2 * norms : norms, shape.hidden);
  if (shape.qkv_bias) add(checked_add(shape.heads, checked_mul(2, shape.kv_heads)), shape.head_dim);
  if (shape.qk_norm)
    add(traits.whole_qk_norms ? checked_add(shape.heads, shape.kv_heads) : 2, shape.head_dim);
  if (traits.sinks) add(1, shape.heads);
  if (traits.latent_attention) add(1, checked_add(shape.query_latent, shape.kv_latent));
  if (shape.sigmoid_routing && has_experts) add(1, shape.experts);
  if (traits.biases) add(1, shape.hidden);
  if (traits.biases && !has_experts) {
    add(1, shape.hidden);
    add(traits.gated ? 2 : 1, shape.intermediate);
  }
  if (traits.biases && has_experts)
    add(shape.experts, checked_add(1 + shape.hidden, checked_mul(2, shape.expert_intermediate)));
  return total;
}

std::int64_t unchosen_elements(const ModelShape& shape) {
  const std::int64_t blocks = shape.layers - std::ssize(shape.dense_layers);
  const std::int64_t unchosen = checked_mul(blocks, shape.experts - shape.experts_per_token);
  const std::int64_t matrices = product_of(3, shape.hidden, shape.expert_intermediate);
  const std::int64_t biases = checked_add(shape.hidden, checked_mul(2, shape.expert_intermediate));
  return checked_mul(unchosen, shape.traits().biases ? checked_add(matrices, biases) : matrices);
}

Result<void> check_shape(const ModelShape& shape, const std::string& where) {
  MFSDP_TRY(check_ranges(shape, where));
  MFSDP_TRY(check_heads(shape, where));
  MFSDP_TRY(check_experts(shape, where));
  MFSDP_TRY(check_reals(shape, where));
  MFSDP_TRY(check_attention(shape, where));
  MFSDP_TRY(check_family(shape, where));
  return check_count(shape, where);
}

}  // namespace mfsdp
