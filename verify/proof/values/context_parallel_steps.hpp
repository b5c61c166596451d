// Steps of models whose ranks of axis cp share the tokens of each sequence. RoPE and attention work
// on whole sequences, with the heads of one group on each rank; all else works on a rank's tokens.
// Values change from one to the other by an all_to_all over cp, and in no other way:
//
//   qkv -> by groups -all_to_all-> of whole sequences -RoPE-> query_key, attention
//   attention of whole sequences -all_to_all-> by groups -> attention
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
    model_step(K::rope_forward, 0, replaces("query_key", of(qkv_sequences), of(query_key)),
               reads("rope_table", outside), kInDocuments),
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
    model_step(K::rope_backward, 0, replaces("d_query_key", of(d_rotated), of(d_qkv_sequences)),
               reads("rope_table", outside), kInDocuments),
    model_step(K::join_heads, 0, reads("input", d_qkv_groups), makes("output", d_qkv)),
};

/// Values that an all_to_all over cp moves: as they are sent, and as they are received.
inline constexpr std::array kExchanged{
    std::pair{qkv_groups, qkv_sequences},
    std::pair{attention_sequences, attention_groups},
    std::pair{d_attention_groups, d_attention_sequences},
    std::pair{d_qkv_sequences, d_qkv_groups},
};

/// Nothing where the model sends no such value.
[[nodiscard]] constexpr std::optional<Value> received_of(Value value) {
  for (const auto& [out, in] : kExchanged)
    if (out == value) return in;
  return std::nullopt;
}

/// Works on whole sequences, with the heads of one rank.
[[nodiscard]] constexpr bool is_of_sequences(KernelKind kind) {
  return kind == K::attention_forward || kind == K::attention_backward || kind == K::rope_forward ||
         kind == K::rope_backward;
}

}  // namespace mfsdp::context_parallel
