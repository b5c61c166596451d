// Steps of models with more ranks of tp than heads of keys. The ranks that hold a head's columns
// exchange them, and attention and RoPE work on whole heads. Values change from one to the other by
// collectives over tp, and in no other way:
//
//   key_part (columns) -all_gather-> key_parts (whole)        qkv, key_parts -> qkv_heads
//   d_key_parts (partial) -reduce_scatter-> d_key_part (columns)        d_qkv_heads, d_key_part -> d_qkv
#pragma once

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "core/plan/config.hpp"
#include "verify/proof/values/step_words.hpp"
#include "verify/proof/values/value_layouts.hpp"

namespace mfsdp::held_keys {

using namespace steps;  // the table reads as the other tables of steps

inline constexpr std::array kSteps{
    model_step(K::take_keys, 0, reads("key", qkv, Part::key), reads("value", qkv, Part::part_value),
               makes("output", key_part)),
    model_step(K::join_key_parts, 0, reads("query", qkv), reads("parts", key_parts),
               makes("output", qkv_heads)),
    model_step(K::attention_forward, 0, reads("query", query_key),
               reads("key", query_key, Part::key), reads("value", qkv_heads, Part::value),
               makes("output", attention), makes("log_sum_exp", log_sum_exp), kInDocuments),
    model_step(K::attention_backward, 0, reads("query", query_key),
               reads("key", query_key, Part::key), reads("value", qkv_heads, Part::value),
               reads("output", attention), reads("d_output", d_attention),
               reads("log_sum_exp", log_sum_exp), makes("d_qkv", d_rotated, Part::unrotated),
               kInDocuments),
    model_step(K::split_key_parts, 0, reads("input", d_qkv_heads), makes("parts", d_key_parts)),
    model_step(K::join_keys, 0, reads("query", d_qkv_heads), reads("key_value", d_key_part),
               makes("output", d_qkv)),
};

inline constexpr std::array kRope{
    model_step(K::rope_forward, 0, replaces("query_key", of(qkv_heads), of(query_key)),
               reads("rope_table", outside), kInDocuments),
    model_step(K::rope_backward, 0, replaces("d_query_key", of(d_rotated), of(d_qkv_heads)),
               reads("rope_table", outside), kInDocuments),
};

inline constexpr std::array kHeadNorms{
    model_step(K::qk_norm_rope_forward, 0, P::q_norm, reads("query_key", qkv_heads),
               reads("rope_table", outside), makes("output", query_key), makes("rstd", qk_rstd),
               kInDocuments),
    model_step(K::qk_norm_rope_backward, 0, P::q_norm,
               replaces("d_query_key", of(d_rotated), of(d_qkv_heads)),
               reads("query_key", qkv_heads), reads("rope_table", outside), reads("rstd", qk_rstd),
               makes("partials", qk_partials), kInDocuments),
};

/// Takes or makes whole heads, or parts of them.
[[nodiscard]] constexpr bool is_of_heads(KernelKind kind) {
  switch (kind) {
    case K::attention_backward:
    case K::attention_forward:
    case K::join_key_parts:
    case K::join_keys:
    case K::qk_norm_rope_backward:
    case K::qk_norm_rope_forward:
    case K::rope_backward:
    case K::rope_forward:
    case K::split_key_parts:
    case K::take_keys: return true;
    default: return false;
  }
}

/// A message where a kernel takes other columns than a rank's, or parts of other ranks than those
/// that hold its head. `config`: of one rank; `holders`: of a head.
[[nodiscard]] inline std::optional<std::string> wrong_parts(const Kernel& kernel,
                                                            const PlanConfig& config,
                                                            std::int64_t holders) {
  const bool of_parts = kernel.kind == K::join_key_parts || kernel.kind == K::split_key_parts;
  if (!of_parts && kernel.kind != K::join_keys && kernel.kind != K::take_keys) return std::nullopt;
  const std::int64_t part = config.model.head_dim / holders;
  const std::int64_t queries = checked_mul(config.model.heads, config.model.head_dim);
  const bool queried = kernel.kind == K::join_key_parts || kernel.kind == K::join_keys;
  const std::int64_t wide = of_parts ? config.model.head_dim : part;
  for (const auto& [name, wanted] :
       {std::pair{"key_cols", part}, std::pair{"query_cols", queried ? queries : 0},
        std::pair{"cols", kernel.kind == K::take_keys ? 0 : checked_add(queries, 2 * wide)},
        std::pair{"holders", of_parts ? holders : 0},
        std::pair{"peers", of_parts ? config.mesh.size(kLayoutAxis) : 0}}) {
    const Attribute* stated = kernel.find_attribute(name);
    if (wanted == 0 ? stated != nullptr
                    : stated == nullptr || stated->value != Rational{.num = wanted})
      return fmt::format("has another attribute '{}' than {}, of parts of heads", name, wanted);
  }
  Attribute rank("rank", std::int64_t{0});
  rank.per = {{.axis = kLayoutAxis, .step = 1}};
  const Attribute* stated = kernel.find_attribute("rank");
  if (of_parts ? stated != nullptr && *stated == rank : stated == nullptr) return std::nullopt;
  return fmt::format("has another attribute 'rank' than the index on {}", to_string(kLayoutAxis));
}

/// A value and its layout, as a collective over tp leaves them.
struct MovedKeys {
  Value value = Value::unknown;
  ValueLayout layout = ValueLayout::whole;
};

[[nodiscard]] constexpr bool is_moved(Value value) {
  return value == key_part || value == d_key_parts;
}

/// Nothing where no such collective moves parts of keys.
[[nodiscard]] constexpr std::optional<MovedKeys> moved_keys(Value value, ValueLayout layout,
                                                            CollectiveKind kind,
                                                            Reduction reduction) {
  if (value == key_part && layout == ValueLayout::columns && kind == CollectiveKind::all_gather &&
      reduction == Reduction::none)
    return MovedKeys{.value = key_parts, .layout = ValueLayout::whole};
  if (value == d_key_parts && layout == ValueLayout::partial &&
      kind == CollectiveKind::reduce_scatter && reduction == Reduction::sum)
    return MovedKeys{.value = d_key_part, .layout = ValueLayout::columns};
  return std::nullopt;
}

}  // namespace mfsdp::held_keys
