// From a call to the structs of rope.hpp. Errors name the operand and what was expected.
#pragma once

#include "core/runtime/calls/rope.hpp"
#include "core/runtime/calls/take_norm.hpp"
#include "core/runtime/calls/take_pieces.hpp"

namespace mfsdp::kernels {

/// Sizes from the columns of query and key heads and the table; checked with both.
[[nodiscard]] inline RopeShape take_rope_shape(OperandReader& in, std::string_view columns) {
  RopeShape s{.tokens = in.attribute("rows"),
              .seq_len = in.dim("rope_table", 0),
              .heads = in.dim(columns, 1),
              .head_dim = in.dim(columns, 2),
              .turned = in.dim("rope_table", 1)};
  s.positions = in.take_if_any<const std::int32_t>("positions", {s.tokens});
  return s;
}

template <class T>
[[nodiscard]] HeadRows<T> take_head_rows(OperandReader& in, std::string_view role,
                                         const RopeShape& s) {
  const OperandView* view = in.strided<T>(role, {s.tokens, s.heads, s.head_dim});
  if (view == nullptr) return {};
  return {.data = OperandReader::data<T>(view), .row = view->strides[0], .head = view->strides[1]};
}

[[nodiscard]] inline const float* take_rope_table(OperandReader& in, const RopeShape& s) {
  if (s.head_dim % 2 != 0) in.complain("rope_table", "expected an even head dim");
  if (s.turned % 2 != 0 || s.turned > s.head_dim)
    in.complain("rope_table", "expected rows of an even number of elements, no more than a head's");
  if (s.seq_len < 1) in.complain("rope_table", "expected at least one position");
  return in.take<const float>("rope_table", {s.seq_len, s.turned});
}

/// What rope_forward and rope_backward turn.
[[nodiscard]] inline std::string_view rope_role(const Kernel& kernel) {
  return kernel.kind == KernelKind::rope_backward ? "d_query_key" : "query_key";
}

template <class T>
[[nodiscard]] Result<Rope<T>> take_rope(const KernelCall& call) {
  OperandReader in(call);
  const std::string_view role = rope_role(*call.kernel);
  const RopeShape s = take_rope_shape(in, role);
  const Rope<T> k{.shape = s,
                  .heads = take_head_rows<T>(in, role, s),
                  .table = take_rope_table(in, s),
                  .backwards = call.kernel->kind == KernelKind::rope_backward};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<QkNormRopeForward<T, float>> take_qk_norm_rope_forward(
    const KernelCall& call) {
  OperandReader in(call);
  const RopeShape s = take_rope_shape(in, "query_key");
  const QkNormRopeForward<T, float> k{.shape = s,
                                      .query_heads = in.attribute("query_heads"),
                                      .epsilon = static_cast<Real<T>>(in.number("epsilon")),
                                      .in = take_head_rows<const T>(in, "query_key", s),
                                      .table = take_rope_table(in, s),
                                      .query_weight = in.take<const T>("weight", {s.head_dim}, 0),
                                      .key_weight = in.take<const T>("weight", {s.head_dim}, 1),
                                      .weight_offset = take_weight_offset<T>(in),
                                      .out = take_head_rows<T>(in, "output", s),
                                      .rstd = in.take<Real<T>>("rstd", {s.tokens, s.heads})};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<QkNormRopeBackward<T, float>> take_qk_norm_rope_backward(
    const KernelCall& call) {
  OperandReader in(call);
  const RopeShape s = take_rope_shape(in, "query_key");
  const std::int64_t partial_rows = in.dim("partials", 0) / 2;
  const QkNormRopeBackward<T, float> k{
      .shape = s,
      .query_heads = in.attribute("query_heads"),
      .partial_rows = partial_rows,
      .gradient = take_head_rows<T>(in, "d_query_key", s),
      .in = take_head_rows<const T>(in, "query_key", s),
      .table = take_rope_table(in, s),
      .rstd = in.take<const Real<T>>("rstd", {s.tokens, s.heads}),
      .query_weight = in.take<const T>("weight", {s.head_dim}, 0),
      .key_weight = in.take<const T>("weight", {s.head_dim}, 1),
      .weight_offset = take_weight_offset<T>(in),
      .partials = in.take<Real<T>>("partials", {2 * partial_rows, s.head_dim}),
      .pieces = take_pieces(in, "query_key", *call.kernel, s.tokens)};
  if (partial_rows < 1) in.complain("partials", "expected at least two rows");
  MFSDP_TRY(in.result());
  return k;
}

/// Of norms over all heads of a kind; checked with both weights.
[[nodiscard]] inline std::int64_t take_key_heads(OperandReader& in, const RopeShape& s) {
  const std::int64_t keys = in.attribute("key_heads");
  if (keys + in.attribute("query_heads") != s.heads)
    in.complain("query_key", "expected as many heads as there are of queries and of keys");
  return keys;
}

template <class T>
[[nodiscard]] Result<QkRowNormRopeForward<T, float>> take_qk_row_norm_rope_forward(
    const KernelCall& call) {
  OperandReader in(call);
  const RopeShape s = take_rope_shape(in, "query_key");
  const std::int64_t queries = in.attribute("query_heads");
  const std::int64_t keys = take_key_heads(in, s);
  const QkRowNormRopeForward<T, float> k{
      .shape = s,
      .query_heads = queries,
      .epsilon = static_cast<Real<T>>(in.number("epsilon")),
      .in = take_head_rows<const T>(in, "query_key", s),
      .table = take_rope_table(in, s),
      .query_weight = in.take<const T>("weight", {queries * s.head_dim}, 0),
      .key_weight = in.take<const T>("weight", {keys * s.head_dim}, 1),
      .weight_offset = take_weight_offset<T>(in),
      .out = take_head_rows<T>(in, "output", s),
      .rstd = in.take<Real<T>>("rstd", {s.tokens, 2})};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<QkRowNormRopeBackward<T, float>> take_qk_row_norm_rope_backward(
    const KernelCall& call) {
  OperandReader in(call);
  const RopeShape s = take_rope_shape(in, "query_key");
  const std::int64_t queries = in.attribute("query_heads");
  const std::int64_t keys = take_key_heads(in, s);
  const std::int64_t partial_rows = in.dim("partials", 0);
  const QkRowNormRopeBackward<T, float> k{
      .shape = s,
      .query_heads = queries,
      .partial_rows = partial_rows,
      .gradient = take_head_rows<T>(in, "d_query_key", s),
      .in = take_head_rows<const T>(in, "query_key", s),
      .table = take_rope_table(in, s),
      .rstd = in.take<const Real<T>>("rstd", {s.tokens, 2}),
      .query_weight = in.take<const T>("weight", {queries * s.head_dim}, 0),
      .key_weight = in.take<const T>("weight", {keys * s.head_dim}, 1),
      .weight_offset = take_weight_offset<T>(in),
      .partials = in.take<Real<T>>("partials", {partial_rows, s.heads * s.head_dim}),
      .pieces = take_pieces(in, "query_key", *call.kernel, s.tokens)};
  if (partial_rows < 1) in.complain("partials", "expected at least one row");
  MFSDP_TRY(in.result());
  return k;
}

}  // namespace mfsdp::kernels
