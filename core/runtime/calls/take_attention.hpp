// From a call to the structs of attention.hpp. Errors name the operand and what was expected.
#pragma once

#include <fmt/format.h>

#include "core/runtime/calls/attention.hpp"
#include "core/runtime/calls/operand_reader.hpp"
#include "core/runtime/calls/take_workspace.hpp"

namespace mfsdp::kernels {

[[nodiscard]] inline AttentionShape take_attention_shape(OperandReader& in) {
  AttentionShape s{.batch = in.attribute("batch"),
                   .heads = in.attribute("heads"),
                   .kv_heads = in.attribute("kv_heads"),
                   .seq_len = in.attribute("seq"),
                   .head_dim = in.attribute("head_dim"),
                   .value_dim = in.attribute_if_any("value_dim"),
                   .window = in.attribute_if_any("window"),
                   .query_scalar = in.number_if_any("query_scalar"),
                   .score_cap = in.number_if_any("score_cap")};
  if (s.kv_heads < 1 || s.heads % s.kv_heads != 0)
    in.complain("query",
                fmt::format("expected heads that are a multiple of kv_heads, got {} and {}",
                            s.heads, s.kv_heads));
  s.positions = in.take_if_any<const std::int32_t>("positions", {s.batch * s.seq_len});
  return s;
}

template <class T>
[[nodiscard]] HeadView<const T> take_head_view(OperandReader& in, std::string_view role,
                                               const AttentionShape& s, std::int64_t heads,
                                               std::int64_t head_dim) {
  const OperandView* view = in.strided<const T>(role, {s.batch, heads, s.seq_len, head_dim});
  if (view == nullptr) return {};
  return {.data = OperandReader::data<const T>(view),
          .batch = view->strides[0],
          .head = view->strides[1],
          .position = view->strides[2]};
}

/// Heads side by side in rows of tokens, from column `col` of `row`.
template <class T>
[[nodiscard]] HeadView<T> heads_in_rows(T* data, const AttentionShape& s, std::int64_t head_dim,
                                        std::int64_t row, std::int64_t col) {
  return {.data = data + col, .batch = s.seq_len * row, .head = head_dim, .position = row};
}

template <class T>
[[nodiscard]] Result<AttentionForward<T>> take_attention_forward(const KernelCall& call) {
  OperandReader in(call);
  const AttentionShape s = take_attention_shape(in);
  const std::int64_t tokens = s.batch * s.seq_len;
  const std::int64_t width = s.heads * s.values();
  const AttentionForward<T> k{
      .shape = s,
      .query = take_head_view<T>(in, "query", s, s.heads, s.head_dim),
      .key = take_head_view<T>(in, "key", s, s.kv_heads, s.head_dim),
      .value = take_head_view<T>(in, "value", s, s.kv_heads, s.values()),
      .output = heads_in_rows(in.take<T>("output", {tokens, width}), s, s.values(), width, 0),
      .log_sum_exp = in.take<Real<T>>("log_sum_exp", {tokens, s.heads}),
      .workspace = take_workspace_if_any(in)};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<AttentionBackward<T>> take_attention_backward(const KernelCall& call) {
  OperandReader in(call);
  const AttentionShape s = take_attention_shape(in);
  const std::int64_t tokens = s.batch * s.seq_len;
  const std::int64_t width = s.heads * s.head_dim;
  const std::int64_t key_width = s.kv_heads * s.head_dim;
  const std::int64_t row = width + key_width + s.kv_heads * s.values();
  const std::int64_t made = s.heads * s.values();
  auto* const d_qkv = in.take<T>("d_qkv", {tokens, row});
  const auto* const output = in.take<const T>("output", {tokens, made});
  const auto* const d_output = in.take<const T>("d_output", {tokens, made});
  const AttentionBackward<T> k{
      .shape = s,
      .query = take_head_view<T>(in, "query", s, s.heads, s.head_dim),
      .key = take_head_view<T>(in, "key", s, s.kv_heads, s.head_dim),
      .value = take_head_view<T>(in, "value", s, s.kv_heads, s.values()),
      .output = heads_in_rows(output, s, s.values(), made, 0),
      .d_output = heads_in_rows(d_output, s, s.values(), made, 0),
      .log_sum_exp = in.take<const Real<T>>("log_sum_exp", {tokens, s.heads}),
      .d_query = heads_in_rows(d_qkv, s, s.head_dim, row, 0),
      .d_key = heads_in_rows(d_qkv, s, s.head_dim, row, width),
      .d_value = heads_in_rows(d_qkv, s, s.values(), row, width + key_width),
      .deterministic = call.kernel->attribute("deterministic") != 0,
      .d_query_sum = in.take_if_any<Real<T>>("d_query_sum", {tokens, width}),
      .row_sums = in.take_if_any<Real<T>>("row_sums", {tokens, s.heads}),
      .workspace = take_workspace_if_any(in)};
  MFSDP_TRY(in.result());
  return k;
}

/// Sizes from attributes and the table; wrong ones are complained of by the operand that shows it.
[[nodiscard]] inline LatentShape take_latent_shape(OperandReader& in) {
  LatentShape s{.rows = in.attribute("rows"),
                .seq_len = in.dim("rope_table", 0),
                .heads = in.attribute("heads"),
                .head_dim = in.attribute("head_dim"),
                .turned = in.dim("rope_table", 1)};
  s.value_dim = in.attribute("key_value_dim") - s.kept();
  s.positions = in.take_if_any<const std::int32_t>("positions", {s.rows});
  if (s.turned % 2 != 0 || s.turned > s.head_dim)
    in.complain("rope_table", fmt::format("expected an even number of at most {} elements that "
                                          "turn, got {}",
                                          s.head_dim, s.turned));
  if (s.value_dim < 1 || in.attribute("qkv_dim") != 2 * s.head_dim + s.value_dim)
    in.complain("rope_table", "expected keys and values that fit beside what turns");
  return s;
}

template <class T>
[[nodiscard]] Result<LatentHeadsForward<T>> take_latent_heads_forward(const KernelCall& call) {
  OperandReader in(call);
  const LatentShape s = take_latent_shape(in);
  const std::int64_t width = in.attribute("latent_width");
  const LatentHeadsForward<T> k{
      .shape = s,
      .latent_width = width,
      .query = in.take<const T>("query", {s.rows, s.heads * s.head_dim}),
      .key_value = in.take<const T>("key_value", {s.rows, s.heads * (s.kept() + s.value_dim)}),
      .latent = in.take<const T>("latent", {s.rows, width}),
      .table = in.take<const float>("rope_table", {s.seq_len, s.turned}),
      .output = in.take<T>("output", {s.rows, s.heads * (2 * s.head_dim + s.value_dim)})};
  if (width < s.turned) in.complain("latent", "expected what turns behind the latent vector");
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<LatentHeadsBackward<T>> take_latent_heads_backward(const KernelCall& call) {
  OperandReader in(call);
  const LatentShape s = take_latent_shape(in);
  const LatentHeadsBackward<T> k{
      .shape = s,
      .d_output = in.take<const T>("d_output", {s.rows, s.heads * (2 * s.head_dim + s.value_dim)}),
      .table = in.take<const float>("rope_table", {s.seq_len, s.turned}),
      .d_query = in.take<T>("d_query", {s.rows, s.heads * s.head_dim}),
      .d_key_value = in.take<T>("d_key_value", {s.rows, s.heads * (s.kept() + s.value_dim)}),
      .d_turned = in.take<T>("d_turned", {s.rows, s.turned})};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<SinkForward<T>> take_sink_forward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t heads = in.attribute("heads");
  const std::int64_t head_dim = in.attribute("head_dim");
  const SinkForward<T> k{.rows = rows,
                         .heads = heads,
                         .head_dim = head_dim,
                         .output = in.take<T>("output", {rows, heads * head_dim}),
                         .log_sum_exp = in.take<Real<T>>("log_sum_exp", {rows, heads}),
                         .sinks = in.take<const T>("weight", {heads})};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<SinkBackward<T>> take_sink_backward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t heads = in.attribute("heads");
  const std::int64_t head_dim = in.attribute("head_dim");
  const SinkBackward<T> k{.rows = rows,
                          .heads = heads,
                          .head_dim = head_dim,
                          .output = in.take<const T>("output", {rows, heads * head_dim}),
                          .d_output = in.take<const T>("d_output", {rows, heads * head_dim}),
                          .log_sum_exp = in.take<const Real<T>>("log_sum_exp", {rows, heads}),
                          .sinks = in.take<const T>("weight", {heads}),
                          .d_sinks = in.take<T>("d_sinks", {rows, heads})};
  MFSDP_TRY(in.result());
  return k;
}

}  // namespace mfsdp::kernels
