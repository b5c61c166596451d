// From a call to the structs of experts.hpp. Errors name the operand and what was expected.
#pragma once

#include <fmt/format.h>

#include <limits>

#include "core/runtime/calls/experts.hpp"
#include "core/runtime/calls/take_pieces.hpp"
#include "core/runtime/calls/take_workspace.hpp"

namespace mfsdp::kernels {

[[nodiscard]] inline RoutingSizes take_routing_sizes(OperandReader& in) {
  RoutingSizes sizes{.tokens = in.attribute("rows"),
                     .experts = in.attribute("experts"),
                     .top_k = in.attribute("top_k"),
                     .seq = in.attribute_if_any("seq"),
                     .normalised = in.attribute_if_any("normalised") != 0,
                     .sigmoid = in.attribute_if_any("sigmoid") != 0,
                     .groups = in.attribute_if_any("groups"),
                     .chosen_groups = in.attribute_if_any("chosen_groups")};
  if (const double scale = in.number_if_any("scale"); scale != 0) sizes.scale = scale;
  if (sizes.groups != 0 && (sizes.groups < 1 || sizes.experts % sizes.groups != 0 ||
                            sizes.chosen_groups < 1 || sizes.chosen_groups > sizes.groups ||
                            sizes.experts / sizes.groups * sizes.chosen_groups < sizes.top_k ||
                            (sizes.sigmoid && sizes.experts / sizes.groups < 2)))
    in.complain("indices", fmt::format("expected {} groups of {} experts, {} of them a token's",
                                       sizes.groups, sizes.experts, sizes.chosen_groups));
  if (sizes.top_k < 1 || sizes.top_k > sizes.experts)
    in.complain("indices", fmt::format("expected from 1 to {} experts a token, got {}",
                                       sizes.experts, sizes.top_k));
  if (sizes.tokens * sizes.top_k > std::numeric_limits<std::int32_t>::max())
    in.complain("indices", "expected fewer than 2^31 rows");
  return sizes;
}

/// Sequences of the counts; 0 where there are none, or they are no whole ones.
[[nodiscard]] inline std::int64_t take_sequences(OperandReader& in, const RoutingSizes& sizes) {
  if (in.find("counts") == nullptr) return 0;
  if (sizes.seq > 0 && sizes.tokens % sizes.seq == 0) return sizes.tokens / sizes.seq;
  in.complain("counts", fmt::format("expected whole sequences, got {} tokens in ones of {}",
                                    sizes.tokens, sizes.seq));
  return 0;
}

template <class T>
[[nodiscard]] Result<RouterForward<T>> take_router_forward(const KernelCall& call) {
  OperandReader in(call);
  const RoutingSizes s = take_routing_sizes(in);
  const std::int64_t sequences = take_sequences(in, s);
  const RouterForward<T> k{
      .sizes = s,
      .logits = in.take<const T>("logits", {s.tokens, s.experts}),
      .correction = in.take_if_any<const T>("weight", {s.experts}),
      .indices = in.take<std::int32_t>("indices", {s.tokens, s.top_k}),
      .weights = in.take<Real<T>>("weights", {s.tokens, s.top_k}),
      .counts = in.take_if_any<std::int32_t>("counts", {sequences, s.experts})};
  if (s.sigmoid != (k.correction != nullptr))
    in.complain("weight", "expected a correction of each expert beside sigmoids alone");
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<RouterBackward<T>> take_router_backward(const KernelCall& call) {
  OperandReader in(call);
  const RoutingSizes s = take_routing_sizes(in);
  const std::int64_t sequences = take_sequences(in, s);
  const auto* scale = in.take_if_any<const float>("loss_scale", {4});
  const RouterBackward<T> k{
      .sizes = s,
      .logits = in.take<const T>("logits", {s.tokens, s.experts}),
      .indices = in.take<const std::int32_t>("indices", {s.tokens, s.top_k}),
      .d_weights = in.take<const Real<T>>("d_weights", {s.tokens, s.top_k}),
      .counts = in.take_if_any<const std::int32_t>("counts", {sequences, s.experts}),
      .loss_scale = reinterpret_cast<const LossScaleState*>(scale),
      .aux_loss = static_cast<Real<T>>(in.number_if_any("aux_loss")),
      .z_loss = static_cast<Real<T>>(in.number_if_any("z_loss")),
      .d_logits = in.take<T>("d_logits", {s.tokens, s.experts})};
  if (k.aux_loss != 0 && k.counts == nullptr && in.find("counts") == nullptr)
    in.complain("counts", "expected one, as the balance loss is of them");
  MFSDP_TRY(in.result());
  return k;
}

[[nodiscard]] inline Result<ExpertOrder> take_expert_order(const KernelCall& call) {
  OperandReader in(call);
  const RoutingSizes s = take_routing_sizes(in);
  ExpertOrder k{.sizes = s,
                .indices = in.take<const std::int32_t>("indices", {s.tokens, s.top_k}),
                .ends = in.take<std::int32_t>("ends", {s.experts}),
                .order = in.take<std::int32_t>("order", {s.tokens * s.top_k}),
                .places = in.take<std::int32_t>("places", {s.tokens, s.top_k}),
                .workspace = {}};
  k.workspace = take_workspace_if_any(in);
  MFSDP_TRY(in.result());
  return k;
}

/// Blocks of rows, one for each rank.
inline void check_blocks(OperandReader& in, std::int64_t m, std::int64_t peers) {
  if (peers < 1 || m % peers != 0)
    in.complain("order", fmt::format("expected {} rows in equal blocks of {} ranks", m, peers));
}

[[nodiscard]] inline Result<PeerOrder> take_peer_order(const KernelCall& call) {
  OperandReader in(call);
  const RoutingSizes s = take_routing_sizes(in);
  const std::int64_t m = in.attribute("m");
  const std::int64_t peers = in.attribute("peers");
  const PeerOrder k{.sizes = s,
                    .m = m,
                    .peers = peers,
                    .ends = in.take<const std::int32_t>("ends", {s.experts}),
                    .row_order = in.take<const std::int32_t>("row_order", {s.tokens * s.top_k}),
                    .counts = in.take<std::int32_t>("counts", {s.experts}),
                    .order = in.take<std::int32_t>("order", {m}),
                    .places = in.take<std::int32_t>("places", {s.tokens, s.top_k})};
  check_blocks(in, m, peers);
  if (peers >= 1 && s.experts % peers != 0)
    in.complain("ends",
                fmt::format("expected {} experts in equal numbers on {} ranks", s.experts, peers));
  MFSDP_TRY(in.result());
  return k;
}

[[nodiscard]] inline Result<ArrivalOrder> take_arrival_order(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t experts = in.attribute("experts");
  const std::int64_t m = in.attribute("m");
  const std::int64_t peers = in.attribute("peers");
  const ArrivalOrder k{.experts = experts,
                       .m = m,
                       .peers = peers,
                       .counts = in.take<const std::int32_t>("counts", {peers, experts}),
                       .ends = in.take<std::int32_t>("ends", {experts}),
                       .order = in.take<std::int32_t>("order", {m}),
                       .places = in.take<std::int32_t>("places", {m})};
  check_blocks(in, m, peers);
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<PermuteRows<T>> take_permute_rows(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t tokens = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t top_k = in.attribute("top_k");
  const std::int64_t rows = room_of(*call.kernel);
  const PermuteRows<T> k{.tokens = tokens,
                         .rows = rows,
                         .cols = cols,
                         .top_k = top_k,
                         .input = in.take<const T>("input", {tokens, cols}),
                         .order = in.take<const std::int32_t>("order", {rows}),
                         .weights = in.take_if_any<const Real<T>>("weights", {tokens, top_k}),
                         .row_weights = in.take_if_any<Real<T>>("row_weights", {rows}),
                         .output = in.take<T>("output", {rows, cols})};
  if ((k.weights == nullptr) != (k.row_weights == nullptr))
    in.complain("row_weights", "expected it beside weights");
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<CombineRows<T>> take_combine_rows(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t tokens = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t top_k = in.attribute("top_k");
  const std::int64_t rows = room_of(*call.kernel);
  const CombineRows<T> k{.tokens = tokens,
                         .rows = rows,
                         .cols = cols,
                         .top_k = top_k,
                         .adds = in.attribute("beta") != 0,
                         .input = in.take<const T>("input", {rows, cols}),
                         .places = in.take<const std::int32_t>("places", {tokens, top_k}),
                         .row_weights = in.take_if_any<const Real<T>>("row_weights", {rows}),
                         .weights = in.take_if_any<Real<T>>("weights", {tokens, top_k}),
                         .output = in.take<T>("output", {tokens, cols})};
  if ((k.weights == nullptr) != (k.row_weights == nullptr))
    in.complain("weights", "expected it beside row_weights");
  MFSDP_TRY(in.result());
  return k;
}

[[nodiscard]] inline GroupedSizes take_grouped_sizes(OperandReader& in) {
  return {.experts = in.attribute("experts"),
          .m = in.attribute("m"),
          .n = in.attribute("n"),
          .k = in.attribute("k")};
}

template <class T>
[[nodiscard]] Result<GroupedProduct<T>> take_grouped_product(const KernelCall& call) {
  OperandReader in(call);
  const GroupedSizes s = take_grouped_sizes(in);
  const bool gradient = call.kernel->kind == KernelKind::grouped_input_gradient;
  const std::int64_t from = gradient ? s.n : s.k;
  const std::int64_t to = gradient ? s.k : s.n;
  GroupedProduct<T> p{.sizes = s,
                      .gradient = gradient,
                      .input = in.take<const T>(gradient ? "d_output" : "input", {s.m, from}),
                      .weight = in.take<const T>("weight", {s.experts * s.n, s.k}),
                      .ends = in.take<const std::int32_t>("ends", {s.experts}),
                      .output = in.take<T>(gradient ? "d_input" : "output", {s.m, to}),
                      .workspace = {}};
  p.workspace = take_workspace_if_any(in);
  MFSDP_TRY(in.result());
  return p;
}

template <class T, class G>
[[nodiscard]] Result<GroupedWeightGradient<T, G>> take_grouped_weight_gradient(
    const KernelCall& call) {
  OperandReader in(call);
  const GroupedSizes s = take_grouped_sizes(in);
  GroupedWeightGradient<T, G> p{.sizes = s,
                                .d_output = in.take<const T>("d_output", {s.m, s.n}),
                                .input = in.take<const T>("input", {s.m, s.k}),
                                .ends = in.take<const std::int32_t>("ends", {s.experts}),
                                .adds = in.attribute("beta") != 0,
                                .weight_grad = in.take<G>("weight_grad", {s.experts * s.n, s.k}),
                                .workspace = {},
                                .pieces = take_pieces(in, "input", *call.kernel, s.m)};
  p.workspace = take_workspace_if_any(in);
  if (p.pieces.grid && p.pieces.rows != 1)
    in.complain("input", fmt::format("expected pieces of one row, got {}", p.pieces.rows));
  MFSDP_TRY(in.result());
  return p;
}

template <class T>
[[nodiscard]] Result<SigmoidForward<T>> take_sigmoid_forward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const SigmoidForward<T> k{.rows = rows,
                            .input = in.take<const T>("input", {rows, 1}),
                            .output = in.take<Real<T>>("output", {rows})};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<SigmoidBackward<T>> take_sigmoid_backward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const SigmoidBackward<T> k{.rows = rows,
                             .output = in.take<const Real<T>>("output", {rows}),
                             .d_output = in.take<const Real<T>>("d_output", {rows}),
                             .d_input = in.take<T>("d_input", {rows, 1})};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<ExpertBiasForward<T>> take_expert_bias_forward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("m");
  const std::int64_t cols = in.attribute("n");
  const std::int64_t experts = in.attribute("experts");
  const ExpertBiasForward<T> k{.rows = rows,
                               .cols = cols,
                               .experts = experts,
                               .output = in.take<T>("output", {rows, cols}),
                               .bias = in.take<const T>("weight", {experts * cols}),
                               .ends = in.take<const std::int32_t>("ends", {experts}),
                               .row_weights = in.take_if_any<const Real<T>>("row_weights", {rows})};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<ExpertBiasDots<T>> take_expert_bias_dots(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("m");
  const std::int64_t cols = in.attribute("n");
  const std::int64_t experts = in.attribute("experts");
  const ExpertBiasDots<T> k{.rows = rows,
                            .cols = cols,
                            .experts = experts,
                            .d_output = in.take<const T>("d_output", {rows, cols}),
                            .bias = in.take<const T>("weight", {experts * cols}),
                            .ends = in.take<const std::int32_t>("ends", {experts}),
                            .d_row_weights = in.take<Real<T>>("d_row_weights", {rows})};
  MFSDP_TRY(in.result());
  return k;
}

template <class T, class G>
[[nodiscard]] Result<ExpertBiasGradient<T, G>> take_expert_bias_gradient(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("m");
  const std::int64_t cols = in.attribute("n");
  const std::int64_t experts = in.attribute("experts");
  const ExpertBiasGradient<T, G> k{
      .rows = rows,
      .cols = cols,
      .experts = experts,
      .d_output = in.take<const T>("d_output", {rows, cols}),
      .ends = in.take<const std::int32_t>("ends", {experts}),
      .row_weights = in.take_if_any<const Real<T>>("row_weights", {rows}),
      .adds = in.attribute("beta") != 0,
      .bias_grad = in.take<G>("weight_grad", {experts * cols}),
      .pieces = take_pieces(in, "d_output", *call.kernel, rows)};
  if (k.pieces.grid && k.pieces.rows != 1)
    in.complain("d_output", fmt::format("expected pieces of one row, got {}", k.pieces.rows));
  MFSDP_TRY(in.result());
  return k;
}

template <class R>
[[nodiscard]] SwigluClamp<R> take_clamp(OperandReader& in) {
  const auto limit = static_cast<R>(in.number_if_any("limit"));
  if (limit == 0) return {};
  return {.alpha = static_cast<R>(in.number_if_any("alpha")), .limit = limit};
}

template <class T>
[[nodiscard]] Result<WeightedSwigluForward<T>> take_weighted_swiglu_forward(
    const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("m");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t experts = in.attribute("experts");
  const WeightedSwigluForward<T> k{
      .rows = rows,
      .cols = cols,
      .experts = experts,
      .gate_up = in.take<const T>("gate_up", {rows, 2 * cols}),
      .row_weights = in.take_if_any<const Real<T>>("row_weights", {rows}),
      .ends = in.take_if_any<const std::int32_t>("ends", {experts}),
      .product = in.take<T>("product", {rows, cols}),
      .interleaved = in.attribute_if_any("interleaved") != 0,
      .clamp = take_clamp<Real<T>>(in)};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<WeightedSwigluBackward<T>> take_weighted_swiglu_backward(
    const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("m");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t experts = in.attribute("experts");
  const OperandView* d_product = in.find("d_product");
  // Where the plan lets the gradient be written, it wants the product in its place.
  const bool makes_product = d_product != nullptr && d_product->access == Access::read_write;
  const WeightedSwigluBackward<T> k{
      .rows = rows,
      .cols = cols,
      .experts = experts,
      .gate_up = in.take<T>("gate_up", {rows, 2 * cols}),
      .row_weights = in.take_if_any<const Real<T>>("row_weights", {rows}),
      .ends = in.take_if_any<const std::int32_t>("ends", {experts}),
      .d_product = in.take<const T>("d_product", {rows, cols}),
      .product = makes_product ? in.take<T>("d_product", {rows, cols}) : nullptr,
      .d_row_weights = in.take_if_any<Real<T>>("d_row_weights", {rows}),
      .interleaved = in.attribute_if_any("interleaved") != 0,
      .clamp = take_clamp<Real<T>>(in)};
  if ((k.row_weights == nullptr) != (k.d_row_weights == nullptr))
    in.complain("d_row_weights", "expected it beside row_weights");
  MFSDP_TRY(in.result());
  return k;
}

}  // namespace mfsdp::kernels
