#include "verify/proof/values/value_layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace mfsdp {
namespace {

constexpr ValueLayout kWhole = ValueLayout::whole;
constexpr ValueLayout kRows = ValueLayout::rows;
constexpr ValueLayout kColumns = ValueLayout::columns;
constexpr ValueLayout kPartial = ValueLayout::partial;

/// Layouts in which a kernel reads all of its values.
struct ValueRule {
  KernelKind kind = KernelKind::gemm;
  std::int64_t variant = 0;
  WeightCut weight = WeightCut::none;
  ValueLayout reads = kWhole;
  MadeLayouts makes = {};
  /// An operand that is in another layout than the others.
  std::string_view other = {};
  ValueLayout reads_other = kWhole;
  /// An operand without which the rule does not hold.
  std::string_view needs = {};
};

constexpr std::int64_t kForward = number_of(GemmKind::forward);
constexpr std::int64_t kInputGradient = number_of(GemmKind::input_gradient);
constexpr std::int64_t kWeightGradient = number_of(GemmKind::weight_gradient);

constexpr ValueRule linear(std::int64_t variant, WeightCut weight, ValueLayout reads,
                           MadeLayouts makes) {
  return {.variant = variant, .weight = weight, .reads = reads, .makes = makes};
}
/// Each row or each column by itself: heads of attention, features of an activation.
constexpr ValueRule alike(KernelKind kind, ValueLayout layout) {
  return {.kind = kind, .reads = layout, .makes = {.values = layout}};
}
/// Heads, of which each has an element of the weight.
constexpr ValueRule of_heads(KernelKind kind) {
  return {
      .kind = kind, .weight = WeightCut::outputs, .reads = kColumns, .makes = {.values = kColumns}};
}
/// A norm of rows: its weight's gradient is a sum over rows.
constexpr ValueRule norm_of_rows(KernelKind kind) {
  return {.kind = kind, .reads = kRows, .makes = {.values = kRows, .gradient = kPartial}};
}

/// A norm of each head: its weight's gradient is a sum over heads.
constexpr ValueRule norm_of_heads(KernelKind kind) {
  return {.kind = kind, .reads = kColumns, .makes = {.values = kColumns, .gradient = kPartial}};
}

constexpr std::array kRules{
    linear(kForward, WeightCut::none, kRows, {.values = kRows}),
    linear(kInputGradient, WeightCut::none, kRows, {.values = kRows}),
    linear(kWeightGradient, WeightCut::none, kRows, {.gradient = kPartial}),
    // Adapters multiply terms with whole weights.
    linear(kForward, WeightCut::none, kPartial, {.values = kPartial}),
    linear(kInputGradient, WeightCut::none, kPartial, {.values = kPartial}),
    ValueRule{.variant = kWeightGradient,
              .reads = kPartial,
              .makes = {.gradient = kPartial},
              .other = "input",
              .reads_other = kWhole},
    ValueRule{.variant = kWeightGradient,
              .reads = kWhole,
              .makes = {.gradient = kPartial},
              .other = "input",
              .reads_other = kPartial},
    // Adapters add to a matrix' results.
    ValueRule{.variant = kForward,
              .weight = WeightCut::outputs,
              .makes = {.values = kColumns},
              .other = "output",
              .reads_other = kColumns},
    linear(kInputGradient, WeightCut::outputs, kColumns, {.values = kPartial}),
    ValueRule{.variant = kWeightGradient,
              .weight = WeightCut::outputs,
              .reads = kColumns,
              .other = "input",
              .reads_other = kWhole},
    linear(kForward, WeightCut::inputs, kColumns, {.values = kPartial}),
    ValueRule{.variant = kInputGradient,
              .weight = WeightCut::inputs,
              .makes = {.values = kColumns},
              .other = "d_input",
              .reads_other = kColumns},
    ValueRule{.variant = kWeightGradient,
              .weight = WeightCut::inputs,
              .reads = kColumns,
              .other = "d_output",
              .reads_other = kWhole},
    ValueRule{.kind = KernelKind::embedding_forward,
              .weight = WeightCut::outputs,
              .makes = {.values = kPartial}},
    ValueRule{.kind = KernelKind::embedding_backward, .weight = WeightCut::outputs},
    norm_of_rows(KernelKind::rms_norm_forward),
    norm_of_rows(KernelKind::rms_norm_backward),
    ValueRule{
        .kind = KernelKind::norm_weight_grad, .reads = kPartial, .makes = {.gradient = kPartial}},
    ValueRule{.kind = KernelKind::bias_grad, .weight = WeightCut::outputs, .reads = kColumns},
    // A bias that is whole is added to a rank's rows of a sum.
    ValueRule{.kind = KernelKind::bias_grad, .reads = kRows, .makes = {.gradient = kPartial}},
    alike(KernelKind::add_bias, kRows),
    of_heads(KernelKind::sink_forward),
    of_heads(KernelKind::sink_backward),
    norm_of_heads(KernelKind::qk_norm_rope_forward),
    norm_of_heads(KernelKind::qk_norm_rope_backward),
    // Latent vectors are of rows; heads are made of those of all rows, in which the elements that all
    // heads share have a gradient from each.
    norm_of_rows(KernelKind::latent_norm_forward),
    norm_of_rows(KernelKind::latent_norm_backward),
    ValueRule{.kind = KernelKind::latent_heads_forward,
              .reads = kColumns,
              .makes = {.values = kColumns},
              .other = "latent"},
    ValueRule{.kind = KernelKind::latent_heads_backward,
              .reads = kColumns,
              .makes = {.values = kColumns, .gradient = kPartial}},
    alike(KernelKind::rope_forward, kColumns),
    alike(KernelKind::rope_backward, kColumns),
    alike(KernelKind::attention_forward, kColumns),
    alike(KernelKind::attention_backward, kColumns),
    alike(KernelKind::split_heads, kColumns),
    alike(KernelKind::join_heads, kColumns),
    // Parts of heads of keys: a rank has columns of one, and learns those of the others.
    alike(KernelKind::take_keys, kColumns),
    alike(KernelKind::join_key_parts, kColumns),
    alike(KernelKind::join_keys, kColumns),
    ValueRule{
        .kind = KernelKind::split_key_parts, .reads = kColumns, .makes = {.values = kPartial}},
    alike(KernelKind::swiglu_forward, kColumns),
    alike(KernelKind::swiglu_forward, kRows),
    alike(KernelKind::swiglu_backward, kColumns),
    alike(KernelKind::swiglu_backward, kRows),
    alike(KernelKind::geglu_forward, kColumns),
    alike(KernelKind::geglu_backward, kColumns),
    // Experts have rows of tokens, and a rank of tp those of its own.
    // Counts of a rank's rows are terms of those of the sequence, which backward reads.
    ValueRule{.kind = KernelKind::router_forward,
              .reads = kRows,
              .makes = {.values = kRows, .gradient = kPartial}},
    ValueRule{.kind = KernelKind::router_backward,
              .reads = kRows,
              .makes = {.values = kRows},
              .other = "counts"},
    alike(KernelKind::expert_order, kRows),
    ValueRule{.kind = KernelKind::peer_order,
              .reads = kRows,
              .makes = {.values = kRows, .gradient = kRows}},
    alike(KernelKind::arrival_order, kRows),
    alike(KernelKind::permute_rows, kRows),
    alike(KernelKind::combine_rows, kRows),
    alike(KernelKind::grouped_product, kRows),
    alike(KernelKind::grouped_input_gradient, kRows),
    ValueRule{.kind = KernelKind::grouped_weight_gradient,
              .reads = kRows,
              .makes = {.gradient = kPartial}},
    alike(KernelKind::expert_bias_forward, kRows),
    alike(KernelKind::expert_bias_dots, kRows),
    ValueRule{
        .kind = KernelKind::expert_bias_gradient, .reads = kRows, .makes = {.gradient = kPartial}},
    alike(KernelKind::weighted_swiglu_forward, kRows),
    alike(KernelKind::weighted_swiglu_backward, kRows),
    alike(KernelKind::sigmoid_forward, kRows),
    alike(KernelKind::sigmoid_backward, kRows),
    // Each rank has its own columns of a row in parts; the loss is that of the whole row.
    alike(KernelKind::softmax_parts, kColumns),
    ValueRule{.kind = KernelKind::cross_entropy,
              .reads = kColumns,
              .makes = {.values = kColumns},
              .needs = "parts"},
    ValueRule{.kind = KernelKind::cross_entropy_loss, .reads = kColumns, .needs = "parts"},
};

/// Operands that are whole on each rank, whatever the others are: angles, tokens, and what ranks
/// have sent each other of their parts.
constexpr std::array<std::string_view, 5> kAlwaysWhole{"rope_table", "labels", "positions",
                                                       "tokens", "parts"};

/// With several ranks on the axis these work on a rank's heads, which are columns.
bool works_on_heads(KernelKind kind) {
  return kind == KernelKind::attention_forward || kind == KernelKind::attention_backward ||
         kind == KernelKind::rope_forward || kind == KernelKind::rope_backward ||
         kind == KernelKind::latent_heads_forward || kind == KernelKind::latent_heads_backward ||
         kind == KernelKind::qk_norm_rope_forward || kind == KernelKind::qk_norm_rope_backward ||
         kind == KernelKind::split_heads || kind == KernelKind::join_heads;
}

/// The operand that a rule does not take, and the layout that it asks for.
struct Misfit {
  const ReadLayout* operand = nullptr;
  ValueLayout wanted = kWhole;
};

std::optional<Misfit> misfit(const ValueRule& rule, std::span<const ReadLayout> reads) {
  for (const ReadLayout& read : reads) {
    const bool is_whole = std::ranges::find(kAlwaysWhole, read.role) != kAlwaysWhole.end();
    const ValueLayout wanted = is_whole                  ? kWhole
                               : read.role == rule.other ? rule.reads_other
                                                         : rule.reads;
    if (read.layout != wanted) return Misfit{.operand = &read, .wanted = wanted};
  }
  return std::nullopt;
}

}  // namespace

std::optional<WeightCut> cut_of(const Placement& shard) {
  const auto along = std::ranges::find(shard, kLayoutAxis, &AxisPlacement::axis);
  if (along == shard.end()) return WeightCut::none;
  if (along->kind != PlacementKind::shard || !along->dim || *along->dim > 1) return std::nullopt;
  return *along->dim == 0 ? WeightCut::outputs : WeightCut::inputs;
}

Result<MadeLayouts> made_by(KernelKind kind, std::int64_t variant, WeightCut weight,
                            std::span<const ReadLayout> reads) {
  // Kernels make whole values of whole ones.
  const ValueRule everywhere{.kind = kind, .variant = variant};
  std::optional<Misfit> first;
  if (weight == WeightCut::none && !works_on_heads(kind)) {
    first = misfit(everywhere, reads);
    if (!first) return everywhere.makes;
  }
  for (const ValueRule& rule : kRules) {
    const bool applies = rule.kind == kind && rule.weight == weight &&
                         (kind != KernelKind::gemm || rule.variant == variant) &&
                         (rule.needs.empty() ||
                          std::ranges::find(reads, rule.needs, &ReadLayout::role) != reads.end());
    if (!applies) continue;
    const auto found = misfit(rule, reads);
    if (!found) return rule.makes;
    if (!first) first = found;
  }
  if (!first)
    return fail("", fmt::format("has a weight that is cut along {}", to_string(kLayoutAxis)));
  return fail("", fmt::format("reads operand '{}' in layout {} along {}; expected {}",
                              first->operand->role, to_string(first->operand->layout),
                              to_string(kLayoutAxis), to_string(first->wanted)));
}

std::optional<ValueLayout> moved_by(CollectiveKind kind, Reduction reduction, ValueLayout from) {
  const bool sums = reduction == Reduction::sum;
  if (kind == CollectiveKind::all_reduce && sums && from == kPartial) return kWhole;
  if (kind == CollectiveKind::reduce_scatter && sums && from == kPartial) return kRows;
  if (kind == CollectiveKind::all_gather && !sums && from == kRows) return kWhole;
  return std::nullopt;
}

}  // namespace mfsdp
