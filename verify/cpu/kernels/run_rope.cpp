#include "verify/cpu/kernels/bindings.hpp"
#include "verify/cpu/kernels/operand_reader.hpp"
#include "verify/cpu/kernels/pieces.hpp"
#include "verify/cpu/kernels/rope.hpp"

namespace mfsdp::kernels {
namespace {

/// Sizes from the columns of query and key heads and the table; checked with both.
RopeShape take_shape(OperandReader& in, std::string_view columns) {
  return {.tokens = in.attribute("rows"),
          .seq_len = in.dim("rope_table", 0),
          .heads = in.dim(columns, 1),
          .head_dim = in.dim(columns, 2)};
}

template <class T>
HeadRows<T> take_heads(OperandReader& in, std::string_view role, const RopeShape& s) {
  const OperandView* view = in.strided<T>(role, {s.tokens, s.heads, s.head_dim});
  if (view == nullptr) return {};
  return {.data = OperandReader::data<T>(view), .row = view->strides[0], .head = view->strides[1]};
}

const float* take_table(OperandReader& in, const RopeShape& s) {
  if (s.head_dim % 2 != 0) in.complain("rope_table", "expected an even head dim");
  if (s.seq_len < 1) in.complain("rope_table", "expected at least one position");
  return in.take<const float>("rope_table", {s.seq_len, s.head_dim});
}

template <class T>
Result<void> qk_norm_forward(const KernelCall& call, const ModelShape& model) {
  OperandReader in(call);
  const RopeShape s = take_shape(in, "query_key");
  const QkNormRopeForward<T, float> k{.shape = s,
                                      .query_heads = model.heads,
                                      .epsilon = static_cast<Real<T>>(model.rms_norm_eps.value()),
                                      .in = take_heads<const T>(in, "query_key", s),
                                      .table = take_table(in, s),
                                      .query_weight = in.take<const T>("weight", {s.head_dim}, 0),
                                      .key_weight = in.take<const T>("weight", {s.head_dim}, 1),
                                      .out = take_heads<T>(in, "output", s),
                                      .rstd = in.take<Real<T>>("rstd", {s.tokens, s.heads})};
  MFSDP_TRY(in.result());
  qk_norm_rope_forward(k);
  return {};
}

template <class T>
Result<void> qk_norm_backward(const KernelCall& call, const ModelShape& model) {
  OperandReader in(call);
  const RopeShape s = take_shape(in, "query_key");
  const std::int64_t partial_rows = in.dim("partials", 0) / 2;
  const QkNormRopeBackward<T, float> k{
      .shape = s,
      .query_heads = model.heads,
      .partial_rows = partial_rows,
      .gradient = take_heads<T>(in, "d_query_key", s),
      .in = take_heads<const T>(in, "query_key", s),
      .table = take_table(in, s),
      .rstd = in.take<const Real<T>>("rstd", {s.tokens, s.heads}),
      .query_weight = in.take<const T>("weight", {s.head_dim}, 0),
      .key_weight = in.take<const T>("weight", {s.head_dim}, 1),
      .partials = in.take<Real<T>>("partials", {2 * partial_rows, s.head_dim})};
  if (partial_rows < 1) in.complain("partials", "expected at least two rows");
  const std::int64_t piece = take_piece_rows(in, "query_key", *call.kernel, s.tokens);
  MFSDP_TRY(in.result());
  if (auto sums = grid_sums<Real<T>>(*call.kernel)) {
    exact_qk_norm_rope_backward(k, piece, *sums);
    return exact_result(*sums, *call.kernel, "partials");
  }
  qk_norm_rope_backward(k);
  return {};
}

}  // namespace

Result<void> run_rope(const KernelCall& call) {
  const bool backwards = call.kernel->kind == KernelKind::rope_backward;
  const std::string_view role = backwards ? "d_query_key" : "query_key";
  return with_type_of(call, role, [&]<class T>(TypeTag<T>) -> Result<void> {
    OperandReader in(call);
    const RopeShape s = take_shape(in, role);
    const HeadRows<T> heads = take_heads<T>(in, role, s);
    const float* table = take_table(in, s);
    MFSDP_TRY(in.result());
    rope(s, heads, table, backwards);
    return {};
  });
}

Result<void> run_qk_norm_rope_forward(const KernelCall& call, const KernelSettings& settings) {
  return with_type_of(call, "query_key", [&]<class T>(TypeTag<T>) {
    return qk_norm_forward<T>(call, settings.program->config.model);
  });
}

Result<void> run_qk_norm_rope_backward(const KernelCall& call, const KernelSettings& settings) {
  return with_type_of(call, "query_key", [&]<class T>(TypeTag<T>) {
    return qk_norm_backward<T>(call, settings.program->config.model);
  });
}

}  // namespace mfsdp::kernels
