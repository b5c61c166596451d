// Kernels of experts: what a router chooses, the order of rows, and their products.
#include <algorithm>

#include "core/plan/op.hpp"
#include "core/plan/spec_words.hpp"

namespace mfsdp::spec {
namespace {

using enum KernelKind;
using enum Element;
using enum OperandUse;

std::int64_t grouped_flops(const Kernel& k) {
  return product_of(2, usual_rows(k), k.attribute("n"), k.attribute("k"));
}

/// Counts of each expert in blocks of so many tokens.
std::int64_t order_workspace(const Kernel& k) {
  constexpr std::int64_t kBlock = 256;
  return product_of(4, k.attribute("experts"),
                    round_up(std::max<std::int64_t>(k.attribute("rows"), 1), kBlock) / kBlock);
}

constexpr OperandSpec kEnds = operand(reads, "ends", int32, {d("experts")});

constexpr OperandSpec experts(OperandUse use, std::string_view role, Element element) {
  return operand(use, role, element, {d("rows"), d("top_k")});
}
constexpr OperandSpec rows_of(OperandUse use, std::string_view role, std::string_view cols) {
  return operand(use, role, compute, {d("m"), d(cols)});
}
constexpr OperandSpec row_weights(OperandUse use, std::string_view role) {
  return operand(use, role, statistic, {d("m")});
}

}  // namespace

std::vector<KernelSpec> routing_specs() {
  const Dim chosen = d("rows", "top_k");
  const Dim room = d("room");  // room_of()
  const auto logits = [](OperandUse use, std::string_view role) {
    return operand(use, role, compute, {d("rows"), d("experts")});
  };
  const auto counts = [](OperandUse use) {
    return optional(operand(use, "counts", int32, {d("sequences"), d("experts")}));
  };
  const std::vector<std::string_view> routing{"experts", "rows", "top_k"};
  return {
      {.kind = router_forward,
       .operands = {logits(reads, "logits"),
                    optional(operand(reads, "weight", compute, {d("experts")})),
                    experts(writes, "indices", int32), experts(writes, "weights", statistic),
                    counts(writes)},
       .attributes = routing,
       .optional_attributes = {"chosen_groups", "groups", "normalised", "scale", "seq", "sigmoid"}},
      {.kind = router_backward,
       .operands = {logits(reads, "logits"), experts(reads, "indices", int32),
                    experts(reads, "d_weights", statistic), counts(reads),
                    optional(operand(reads, "loss_scale", fp32, {d(4)})),
                    logits(writes, "d_logits")},
       .attributes = routing,
       .optional_attributes = {"aux_loss", "normalised", "scale", "seq", "sigmoid", "z_loss"}},
      {.kind = expert_order,
       .operands = {experts(reads, "indices", int32),
                    operand(writes, "ends", int32, {d("experts")}),
                    operand(writes, "order", int32, {chosen}), experts(writes, "places", int32)},
       .attributes = routing,
       .workspace = order_workspace},
      {.kind = permute_rows,
       .operands = {matrix(reads, "input"), operand(reads, "order", int32, {room}),
                    optional(experts(reads, "weights", statistic)),
                    optional(operand(writes, "row_weights", statistic, {room})),
                    operand(writes, "output", compute, {room, d("cols")})},
       .attributes = {"cols", "rows", "top_k"},
       .optional_attributes = {"balanced_rows", "m", "peers"}},
      {.kind = combine_rows,
       .operands = {operand(reads, "input", compute, {room, d("cols")}),
                    experts(reads, "places", int32),
                    optional(operand(reads, "row_weights", statistic, {room})),
                    optional(experts(writes, "weights", statistic)), matrix(adds, "output")},
       .attributes = {"beta", "cols", "rows", "top_k"},
       .optional_attributes = {"balanced_rows", "m"}},
      {.kind = peer_order,
       .operands = {operand(reads, "ends", int32, {d("experts")}),
                    operand(reads, "row_order", int32, {chosen}),
                    operand(writes, "counts", int32, {d("experts")}),
                    operand(writes, "order", int32, {d("m")}), experts(writes, "places", int32)},
       .attributes = {"experts", "m", "peers", "rows", "top_k"}},
      {.kind = arrival_order,
       .operands = {operand(reads, "counts", int32, {d("peers"), d("experts")}),
                    operand(writes, "ends", int32, {d("experts")}),
                    operand(writes, "order", int32, {d("m")}),
                    operand(writes, "places", int32, {d("m")})},
       .attributes = {"experts", "m", "peers"}}};
}

/// Rows of experts: m of them, in the order of experts; `ends` says where each one's end. Those
/// behind the last end are nobody's: no kernel reads or writes them.
std::vector<KernelSpec> expert_specs() {
  const auto weight = [](OperandUse use, std::string_view role, Element element) {
    return operand(use, role, element, {d("experts", "n"), d("k")});
  };
  const auto biases = [](OperandUse use, std::string_view role, Element element) {
    return operand(use, role, element, {d("experts", "n")});
  };
  const std::vector<std::string_view> sizes{"experts", "k", "m", "n"};
  const std::vector<std::string_view> by_expert{"experts", "m", "n"};
  return {{.kind = grouped_product,
           .operands = {rows_of(reads, "input", "k"), weight(reads, "weight", compute), kEnds,
                        rows_of(writes, "output", "n")},
           .attributes = sizes,
           .optional_attributes = {"balanced_rows"},
           .flops = grouped_flops},
          {.kind = grouped_input_gradient,
           .operands = {rows_of(reads, "d_output", "n"), weight(reads, "weight", compute), kEnds,
                        rows_of(writes, "d_input", "k")},
           .attributes = sizes,
           .optional_attributes = {"balanced_rows"},
           .flops = grouped_flops},
          {.kind = grouped_weight_gradient,
           .operands = {rows_of(reads, "d_output", "n"), rows_of(reads, "input", "k"), kEnds,
                        weight(adds, "weight_grad", gradient)},
           .attributes = {"beta", "experts", "k", "m", "n"},
           .optional_attributes = {"balanced_rows"},
           .flops = grouped_flops,
           .sum = GradientSum::of_rank,
           .pieces = "m",
           .rows_are_sums = true},
          {.kind = expert_bias_forward,
           .operands = {rows_of(updates, "output", "n"), biases(reads, "weight", compute), kEnds,
                        optional(row_weights(reads, "row_weights"))},
           .attributes = by_expert,
           .optional_attributes = {"balanced_rows"}},
          {.kind = expert_bias_dots,
           .operands = {rows_of(reads, "d_output", "n"), biases(reads, "weight", compute), kEnds,
                        row_weights(updates, "d_row_weights")},
           .attributes = by_expert,
           .optional_attributes = {"balanced_rows"}},
          {.kind = expert_bias_gradient,
           .operands = {rows_of(reads, "d_output", "n"), kEnds,
                        optional(row_weights(reads, "row_weights")),
                        biases(adds, "weight_grad", gradient)},
           .attributes = {"beta", "experts", "m", "n"},
           .optional_attributes = {"balanced_rows"},
           .sum = GradientSum::of_rank,
           .pieces = "m",
           .rows_are_sums = true}};
}

/// The activation without `ends` is a shared expert's, which has all rows.
std::vector<KernelSpec> expert_activation_specs() {
  const std::vector<std::string_view> inner{"cols", "experts", "m"};
  const std::vector<std::string_view> clamped{"alpha", "balanced_rows", "interleaved", "limit"};
  return {{.kind = sigmoid_forward,
           .operands = {operand(reads, "input", compute, {d("rows"), d(1)}),
                        operand(writes, "output", statistic, {d("rows")})},
           .attributes = {"rows"}},
          {.kind = sigmoid_backward,
           .operands = {operand(reads, "output", statistic, {d("rows")}),
                        operand(reads, "d_output", statistic, {d("rows")}),
                        operand(writes, "d_input", compute, {d("rows"), d(1)})},
           .attributes = {"rows"}},
          {.kind = weighted_swiglu_forward,
           .operands = {operand(reads, "gate_up", compute, {d("m"), d(2, "cols")}),
                        optional(row_weights(reads, "row_weights")), optional(kEnds),
                        rows_of(writes, "product", "cols")},
           .attributes = inner,
           .optional_attributes = clamped},
          {.kind = weighted_swiglu_backward,
           .operands = {operand(updates, "gate_up", compute, {d("m"), d(2, "cols")}),
                        optional(row_weights(reads, "row_weights")), optional(kEnds),
                        rows_of(yields, "d_product", "cols"),
                        optional(row_weights(writes, "d_row_weights"))},
           .attributes = inner,
           .optional_attributes = clamped}};
}

}  // namespace mfsdp::spec
