// From a call to the structs of norm.hpp. Errors name the operand and what was expected.
#pragma once

#include "core/runtime/calls/norm.hpp"
#include "core/runtime/calls/take_pieces.hpp"

namespace mfsdp::kernels {

/// Of norms that multiply by 1 + weight.
template <class T>
[[nodiscard]] Real<T> take_weight_offset(OperandReader& in) {
  return in.number_if_any("zero_centered") != 0 ? Real<T>(1) : Real<T>(0);
}

template <class T>
[[nodiscard]] Result<RmsNormForward<T>> take_rms_norm_forward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const RmsNormForward<T> k{.rows = rows,
                            .cols = cols,
                            .epsilon = static_cast<Real<T>>(in.number("epsilon")),
                            .residual = in.take<const T>("residual", {rows, cols}),
                            .delta = in.take_if_any<const T>("delta", {rows, cols}),
                            .weight = in.take<const T>("weight", {cols}),
                            .weight_offset = take_weight_offset<T>(in),
                            .skip = in.take_if_any<const T>("skip", {rows, cols}),
                            .residual_out = in.take_if_any<T>("residual_out", {rows, cols}),
                            .normed = in.take<T>("normed", {rows, cols}),
                            .rstd = in.take<Real<T>>("rstd", {rows})};
  if ((k.delta == nullptr) != (k.residual_out == nullptr))
    in.complain("residual_out", "expected together with delta, or neither");
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<RmsNormBackward<T>> take_rms_norm_backward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t partial_rows = in.dim("partials", 0);
  const OperandView* d_normed = in.find("d_normed");
  const bool makes_normed = d_normed != nullptr && d_normed->access == Access::read_write;
  const RmsNormBackward<T> k{
      .rows = rows,
      .cols = cols,
      .partial_rows = partial_rows,
      .d_normed = in.take<const T>("d_normed", {rows, cols}),
      .input = in.take<const T>("input", {rows, cols}),
      .rstd = in.take<const Real<T>>("rstd", {rows}),
      .weight = in.take<const T>("weight", {cols}),
      .weight_offset = take_weight_offset<T>(in),
      .adds = in.attribute("beta") != 0,
      .d_residual = in.take<T>("d_residual", {rows, cols}),
      .normed = makes_normed ? in.take<T>("d_normed", {rows, cols}) : nullptr,
      .partials = in.take<Real<T>>("partials", {partial_rows, cols}),
      .pieces = take_pieces(in, "input", *call.kernel, rows)};
  if (partial_rows < 1) in.complain("partials", "expected at least one row");
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<LatentNormForward<T>> take_latent_norm_forward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t width = in.attribute("latent_width");
  const LatentNormForward<T> k{.rows = rows,
                               .cols = cols,
                               .width = width,
                               .epsilon = static_cast<Real<T>>(in.number("epsilon")),
                               .input = in.take<const T>("input", {rows, width}),
                               .weight = in.take<const T>("weight", {cols}),
                               .normed = in.take<T>("normed", {rows, cols}),
                               .rstd = in.take<Real<T>>("rstd", {rows})};
  if (cols > width) in.complain("input", "expected rows that the norm's columns fit in");
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<LatentNormBackward<T>> take_latent_norm_backward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t width = in.attribute("latent_width");
  const std::int64_t partial_rows = in.dim("partials", 0);
  const OperandView* d_normed = in.find("d_normed");
  const bool makes_normed = d_normed != nullptr && d_normed->access == Access::read_write;
  const LatentNormBackward<T> k{
      .rows = rows,
      .cols = cols,
      .width = width,
      .partial_rows = partial_rows,
      .d_normed = in.take<const T>("d_normed", {rows, cols}),
      .input = in.take<const T>("input", {rows, width}),
      .rstd = in.take<const Real<T>>("rstd", {rows}),
      .weight = in.take<const T>("weight", {cols}),
      .d_rest = in.take<const T>("d_turned", {rows, width - cols}),
      .d_input = in.take<T>("d_input", {rows, width}),
      .normed = makes_normed ? in.take<T>("d_normed", {rows, cols}) : nullptr,
      .partials = in.take<Real<T>>("partials", {partial_rows, cols}),
      .pieces = take_pieces(in, "input", *call.kernel, rows)};
  if (partial_rows < 1) in.complain("partials", "expected at least one row");
  if (cols >= width) in.complain("input", "expected rows with more than the norm's columns");
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<LayerNormForward<T>> take_layer_norm_forward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const LayerNormForward<T> k{.rows = rows,
                              .cols = cols,
                              .epsilon = static_cast<Real<T>>(in.number("epsilon")),
                              .residual = in.take<const T>("residual", {rows, cols}),
                              .delta = in.take_if_any<const T>("delta", {rows, cols}),
                              .weight = in.take<const T>("weight", {cols}, 0),
                              .bias = in.take<const T>("weight", {cols}, 1),
                              .residual_out = in.take_if_any<T>("residual_out", {rows, cols}),
                              .normed = in.take<T>("normed", {rows, cols}),
                              .mean = in.take<Real<T>>("mean", {rows}),
                              .rstd = in.take<Real<T>>("rstd", {rows})};
  if ((k.delta == nullptr) != (k.residual_out == nullptr))
    in.complain("residual_out", "expected together with delta, or neither");
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Result<LayerNormBackward<T>> take_layer_norm_backward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t partial_rows = in.dim("partials", 0) / 2;
  const OperandView* d_normed = in.find("d_normed");
  const bool makes_normed = d_normed != nullptr && d_normed->access == Access::read_write;
  const LayerNormBackward<T> k{
      .rows = rows,
      .cols = cols,
      .partial_rows = partial_rows,
      .d_normed = in.take<const T>("d_normed", {rows, cols}),
      .input = in.take<const T>("input", {rows, cols}),
      .mean = in.take<const Real<T>>("mean", {rows}),
      .rstd = in.take<const Real<T>>("rstd", {rows}),
      .weight = in.take<const T>("weight", {cols}, 0),
      .bias = in.take<const T>("weight", {cols}, 1),
      .adds = in.attribute("beta") != 0,
      .d_residual = in.take<T>("d_residual", {rows, cols}),
      .normed = makes_normed ? in.take<T>("d_normed", {rows, cols}) : nullptr,
      .partials = in.take<Real<T>>("partials", {2 * partial_rows, cols}),
      .pieces = take_pieces(in, "input", *call.kernel, rows)};
  if (partial_rows < 1) in.complain("partials", "expected at least two rows");
  MFSDP_TRY(in.result());
  return k;
}

/// The sums of the columns of `role`, without partials.
template <class T, class G>
[[nodiscard]] ColumnSums<T, G> take_columns(OperandReader& in, const Kernel& kernel,
                                            std::string_view role) {
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  if (rows < 1) in.complain(role, "expected at least one row");
  return {.rows = rows,
          .cols = cols,
          .in = in.take<const T>(role, {rows, cols}),
          .adds = in.attribute("beta") != 0,
          .out = in.take<G>("weight_grad", {cols}),
          .pieces = take_pieces(in, role, kernel, rows)};
}

/// Second stage of a norm's weight gradient: the sums of its partials.
template <class G>
[[nodiscard]] Result<ColumnSums<Real<G>, G>> take_norm_weight_grad(const KernelCall& call) {
  OperandReader in(call);
  const auto k = take_columns<Real<G>, G>(in, *call.kernel, "partials");
  MFSDP_TRY(in.result());
  return k;
}

template <class T, class G>
[[nodiscard]] Result<ColumnSums<T, G>> take_bias_grad(const KernelCall& call) {
  OperandReader in(call);
  auto k = take_columns<T, G>(in, *call.kernel, "d_output");
  k.partial_rows = in.dim("partials", 0);
  k.partials = in.take<Real<T>>("partials", {k.partial_rows, k.cols});
  if (k.partial_rows < 1) in.complain("partials", "expected at least one row");
  MFSDP_TRY(in.result());
  return k;
}

}  // namespace mfsdp::kernels
