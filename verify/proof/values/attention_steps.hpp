// The steps of attention: heads, latent vectors, sinks, positions and RoPE.
#pragma once

#include "verify/proof/values/step_words.hpp"

namespace mfsdp::steps {

constexpr ModelStep attends(Value columns) {
  return {
      K::attention_forward,
      0,
      {},
      {reads("query", columns), reads("key", columns, Part::key), reads("value", qkv, Part::value),
       makes("output", attention), makes("log_sum_exp", log_sum_exp), kInDocuments}};
}
constexpr ModelStep attends_backward(Value columns, Flow d_qkv_made) {
  return {
      K::attention_backward,
      0,
      {},
      {reads("query", columns), reads("key", columns, Part::key), reads("value", qkv, Part::value),
       reads("output", attention), reads("d_output", d_attention),
       reads("log_sum_exp", log_sum_exp), d_qkv_made, kInDocuments}};
}

inline constexpr std::array kRotated{
    attends(query_key),
    attends_backward(query_key, makes("d_qkv", d_rotated, Part::unrotated)),
};

/// Where each head has a sink.
inline constexpr std::array kSinks{
    model_step(K::attention_forward, 0, reads("query", query_key),
               reads("key", query_key, Part::key), reads("value", qkv, Part::value),
               makes("output", attention_unsunk), makes("log_sum_exp", log_sum_exp_unsunk),
               kInDocuments),
    model_step(K::sink_forward, 0, P::sinks,
               replaces("output", of(attention_unsunk), of(attention)),
               replaces("log_sum_exp", of(log_sum_exp_unsunk), of(log_sum_exp))),
    model_step(K::sink_backward, 0, P::sinks, reads("output", attention),
               reads("d_output", d_attention), reads("log_sum_exp", log_sum_exp),
               makes("d_sinks", d_sinks)),
    bias_sums(P::sinks, d_sinks),
};

inline constexpr std::array kPositions{
    attends(qkv),
    attends_backward(qkv, makes("d_qkv", d_qkv)),
    model_step(K::position_embedding_backward, 0, P::position_embedding,
               reads("d_output", d_output), kInDocuments),
    model_step(K::embedding_forward, 0, P::embedding, reads("tokens", tokens),
               replaces("output", kNothing, next(input)), kInDocuments),
};

constexpr ModelStep added_to_normed1(P parameter, Value d_out) {
  return {K::gemm,
          1,
          parameter,
          {reads("d_output", d_out), replaces("d_input", of(d_normed1_keys), of(d_normed1))}};
}

/// Queries, keys and values by way of latent vectors.
inline constexpr std::array kLatent{
    attends(qkv),
    attends_backward(qkv, makes("d_qkv", d_qkv)),
    // Queries with a latent vector of their own, and without.
    forward(P::q_a, normed1, q_latent),
    output_norm(P::q_a_norm, q_latent, q_latent_normed, q_latent_rstd),
    forward(P::q_b, q_latent_normed, latent_query),
    forward(P::q, normed1, latent_query),
    input_gradient(P::q_b, d_latent_query, d_q_normed),
    norm_backward(P::q_a_norm, d_q_normed, q_latent_normed, q_latent, q_latent_rstd, kNothing,
                  of(d_q_latent), q_latent_partials),
    weight_sums(P::q_a_norm, q_latent_partials),
    weight_gradient(P::q_b, d_latent_query, q_latent_normed),
    weight_gradient(P::q_a, d_q_latent, normed1),
    weight_gradient(P::q, d_latent_query, normed1),
    added_to_normed1(P::q_a, d_q_latent),
    added_to_normed1(P::q, d_latent_query),
    // Keys and values.
    forward(P::kv_a, normed1, kv_latent),
    model_step(K::latent_norm_forward, 0, P::kv_a_norm, reads("input", kv_latent),
               makes("normed", kv_latent_normed), makes("rstd", kv_latent_rstd)),
    forward(P::kv_b, kv_latent_normed, key_value),
    model_step(K::latent_heads_forward, 0, reads("query", latent_query),
               reads("key_value", key_value), reads("latent", kv_latent),
               reads("rope_table", outside), makes("output", qkv), kInDocuments),
    model_step(K::latent_heads_backward, 0, reads("d_output", d_qkv), reads("rope_table", outside),
               makes("d_query", d_latent_query), makes("d_key_value", d_key_value),
               makes("d_turned", d_turned), kInDocuments),
    input_gradient(P::kv_b, d_key_value, d_kv_normed),
    model_step(K::latent_norm_backward, 0, P::kv_a_norm,
               replaces("d_normed", of(d_kv_normed), of(kv_latent_normed)),
               reads("input", kv_latent), reads("rstd", kv_latent_rstd),
               reads("d_turned", d_turned), makes("d_input", d_kv_latent),
               makes("partials", kv_latent_partials)),
    weight_sums(P::kv_a_norm, kv_latent_partials),
    weight_gradient(P::kv_b, d_key_value, kv_latent_normed),
    input_gradient(P::kv_a, d_kv_latent, d_normed1_keys),
    weight_gradient(P::kv_a, d_kv_latent, normed1),
};

inline constexpr std::array kRope{
    model_step(K::rope_backward, 0, replaces("d_query_key", of(d_rotated), of(d_qkv)),
               reads("rope_table", outside), kInDocuments),
    model_step(K::rope_forward, 0, replaces("query_key", of(qkv), of(query_key)),
               reads("rope_table", outside), kInDocuments),
};

constexpr ModelStep norms_and_turns(K kind) {
  return {kind,
          0,
          P::q_norm,
          {reads("query_key", qkv), reads("rope_table", outside), makes("output", query_key),
           makes("rstd", qk_rstd), kInDocuments}};
}
constexpr ModelStep norms_and_turns_backward(K kind) {
  return {kind,
          0,
          P::q_norm,
          {replaces("d_query_key", of(d_rotated), of(d_qkv)), reads("query_key", qkv),
           reads("rope_table", outside), reads("rstd", qk_rstd), makes("partials", qk_partials),
           kInDocuments}};
}

inline constexpr std::array kHeadNorms{
    norms_and_turns(K::qk_norm_rope_forward),
    norms_and_turns_backward(K::qk_norm_rope_backward),
    weight_sums(P::q_norm, qk_partials),
    weight_sums(P::k_norm, qk_partials, Part::second_half),
};

inline constexpr std::array kWholeNorms{
    norms_and_turns(K::qk_row_norm_rope_forward),
    norms_and_turns_backward(K::qk_row_norm_rope_backward),
    weight_sums(P::q_norm, qk_partials),
    weight_sums(P::k_norm, qk_partials, Part::keys_half),
};

}  // namespace mfsdp::steps
