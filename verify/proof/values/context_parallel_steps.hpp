// Steps of models whose ranks of axis cp share the tokens of each sequence. RoPE and attention work
// on whole sequences, with the heads of one group on each rank; all else works on a rank's tokens.
// Values change from one to the other by an all_to_all over cp, and in no other way:
//
//   qkv -> by groups -all_to_all-> of whole sequences -RoPE-> query_key, attention
//   attention of whole sequences -all_to_all-> by groups -> attention
//
// Or only attention works on whole sequences, with the queries of a rank's tokens and the keys of
// all. These come by an all_gather over cp, the terms of their gradients go by a reduce_scatter:
//
//   own_keys (rows) -all_gather-> all_keys (whole)
//   d_all_keys (partial) -reduce_scatter-> d_own_keys (rows)
//
// Or attention has the keys of one rank at a time, which is as many ranks before this one as
// ValueKey::shift states: a shift over cp turns those of s ranks before into those of s + 1, as all
// ranks run one plan. Values that are made of them state their steps (ValueKey::steps), and are
// read elsewhere only with all of them. Terms of gradients of keys travel with the keys, and are
// gradients where they came from, once all ranks have added theirs (ring_values.cpp).
#pragma once

#include <array>
#include <optional>
#include <utility>

#include "verify/proof/values/step_words.hpp"

namespace mfsdp::context_parallel {

using namespace steps;  // the table reads as the other tables of steps

inline constexpr std::array kSteps{
    // Variant 0 has columns of keys and values too, variant 1 has none.
    model_step(K::split_heads, 0, reads("input", qkv), makes("output", qkv_groups)),
    model_step(K::attention_forward, 0, reads("query", query_key),
               reads("key", query_key, Part::key), reads("value", qkv_sequences, Part::value),
               makes("output", attention_sequences), makes("log_sum_exp", log_sum_exp),
               kInDocuments),
    model_step(K::join_heads, 1, reads("input", attention_groups), makes("output", attention)),
    model_step(K::split_heads, 1, reads("input", d_attention), makes("output", d_attention_groups)),
    model_step(K::attention_backward, 0, reads("query", query_key),
               reads("key", query_key, Part::key), reads("value", qkv_sequences, Part::value),
               reads("output", attention_sequences), reads("d_output", d_attention_sequences),
               reads("log_sum_exp", log_sum_exp), makes("d_qkv", d_rotated, Part::unrotated),
               kInDocuments),
    model_step(K::join_heads, 0, reads("input", d_qkv_groups), makes("output", d_qkv)),
};

inline constexpr std::array kRopeOfSequences{
    model_step(K::rope_forward, 0, replaces("query_key", of(qkv_sequences), of(query_key)),
               reads("rope_table", outside), kInDocuments),
    model_step(K::rope_backward, 0, replaces("d_query_key", of(d_rotated), of(d_qkv_sequences)),
               reads("rope_table", outside), kInDocuments),
};

/// With norms of each head, of the heads that a rank has.
inline constexpr std::array kHeadNormsOfSequences{
    model_step(K::qk_norm_rope_forward, 0, P::q_norm, reads("query_key", qkv_sequences),
               reads("rope_table", outside), makes("output", query_key), makes("rstd", qk_rstd),
               kInDocuments),
    model_step(K::qk_norm_rope_backward, 0, P::q_norm,
               replaces("d_query_key", of(d_rotated), of(d_qkv_sequences)),
               reads("query_key", qkv_sequences), reads("rope_table", outside),
               reads("rstd", qk_rstd), makes("partials", qk_partials), kInDocuments),
};

/// Where ranks gather keys. RoPE is that of all models, on a rank's tokens.
inline constexpr std::array kGatheredSteps{
    model_step(K::take_keys, 0, reads("key", query_key, Part::key),
               reads("value", qkv, Part::value), makes("output", own_keys)),
    model_step(K::attention_forward, 0, reads("query", query_key), reads("key", all_keys),
               reads("value", all_keys, Part::own_value), makes("output", attention),
               makes("log_sum_exp", log_sum_exp), kInDocuments),
    model_step(K::attention_backward, 0, reads("query", query_key), reads("key", all_keys),
               reads("value", all_keys, Part::own_value), reads("output", attention),
               reads("d_output", d_attention), reads("log_sum_exp", log_sum_exp),
               makes("d_query", d_query), makes("d_key_value", d_all_keys), kInDocuments),
    model_step(K::join_keys, 0, reads("query", d_query), reads("key_value", d_own_keys),
               makes("output", d_rotated, Part::unrotated)),
};

/// Where keys go around.
inline constexpr std::array kRingSteps{
    model_step(K::take_keys, 0, reads("key", query_key, Part::key),
               reads("value", qkv, Part::value), makes("output", held_keys)),
    model_step(K::attention_forward, 0, reads("query", query_key), reads("key", held_keys),
               reads("value", held_keys, Part::own_value), makes("output", attention_part),
               makes("log_sum_exp", log_sum_exp_part), kInDocuments),
    model_step(K::attention_backward, 0, reads("query", query_key), reads("key", held_keys),
               reads("value", held_keys, Part::own_value), reads("output", attention),
               reads("d_output", d_attention), reads("log_sum_exp", log_sum_exp),
               makes("d_query", d_query_part), makes("d_key_value", d_held_keys), kInDocuments),
    model_step(K::join_keys, 0, reads("query", d_query), reads("key_value", d_own_keys),
               makes("output", d_rotated, Part::unrotated)),
};

/// Where a loss balances experts by the counts of whole sequences.
inline constexpr std::array kBalancedSequences{
    model_step(K::router_backward, 0, reads("logits", router_logits),
               reads("indices", expert_indices), reads("d_weights", d_expert_weights),
               reads("counts", expert_counts_of_sequences), makes("d_logits", d_router_logits)),
};

/// A value that a collective over cp moves: as ranks send it, and as they receive it.
struct Moved {
  CollectiveKind kind = CollectiveKind::all_to_all;
  Value sent = Value::unknown;
  Value received = Value::unknown;
};

inline constexpr std::array kExchanged{
    Moved{CollectiveKind::all_to_all, qkv_groups, qkv_sequences},
    Moved{CollectiveKind::all_to_all, attention_sequences, attention_groups},
    Moved{CollectiveKind::all_to_all, d_attention_groups, d_attention_sequences},
    Moved{CollectiveKind::all_to_all, d_qkv_sequences, d_qkv_groups},
    Moved{CollectiveKind::all_gather, own_keys, all_keys},
    Moved{CollectiveKind::reduce_scatter, d_all_keys, d_own_keys},
    Moved{CollectiveKind::shift, held_keys, held_keys},
    Moved{CollectiveKind::shift, d_held_keys, d_held_keys},
    Moved{CollectiveKind::all_reduce, expert_counts, expert_counts_of_sequences},
};

/// Nothing where no such collective moves the value. Terms are summed, and nothing else is.
[[nodiscard]] constexpr std::optional<Value> received_of(Value value, CollectiveKind kind,
                                                         Reduction reduction) {
  const bool sums = kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_reduce;
  if (reduction != (sums ? Reduction::sum : Reduction::none)) return std::nullopt;
  for (const Moved& moved : kExchanged)
    if (moved.sent == value && moved.kind == kind) return moved.received;
  return std::nullopt;
}

/// Works on whole sequences: with the heads of one rank, or on all `keys` with a rank's queries.
[[nodiscard]] constexpr bool is_of_sequences(KernelKind kind, bool keys) {
  if (kind == K::attention_forward || kind == K::attention_backward) return true;
  const bool rotates = kind == K::rope_forward || kind == K::rope_backward ||
                       kind == K::qk_norm_rope_forward || kind == K::qk_norm_rope_backward ||
                       kind == K::qk_row_norm_rope_forward || kind == K::qk_row_norm_rope_backward;
  return !keys && rotates;
}

}  // namespace mfsdp::context_parallel
