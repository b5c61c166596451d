#include <vector>

#include "verify/cpu/kernels/bindings.hpp"
#include "verify/cpu/kernels/norm.hpp"
#include "verify/cpu/kernels/operand_reader.hpp"
#include "verify/cpu/kernels/pieces.hpp"

namespace mfsdp::kernels {
namespace {

template <class T>
Result<void> forward(const KernelCall& call, const KernelSettings& settings) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const RmsNormForward<T> k{
      .rows = rows,
      .cols = cols,
      .epsilon = static_cast<Real<T>>(settings.program->config.model.rms_norm_eps.value()),
      .residual = in.take<const T>("residual", {rows, cols}),
      .delta = in.take_if_any<const T>("delta", {rows, cols}),
      .weight = in.take<const T>("weight", {cols}),
      .residual_out = in.take_if_any<T>("residual_out", {rows, cols}),
      .normed = in.take<T>("normed", {rows, cols}),
      .rstd = in.take<Real<T>>("rstd", {rows})};
  if ((k.delta == nullptr) != (k.residual_out == nullptr))
    in.complain("residual_out", "expected together with delta, or neither");
  MFSDP_TRY(in.result());
  rms_norm_forward(k);
  return {};
}

template <class T>
Result<void> backward(const KernelCall& call) {
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
      .adds = in.attribute("beta") != 0,
      .d_residual = in.take<T>("d_residual", {rows, cols}),
      .normed = makes_normed ? in.take<T>("d_normed", {rows, cols}) : nullptr,
      .partials = in.take<Real<T>>("partials", {partial_rows, cols})};
  if (partial_rows < 1) in.complain("partials", "expected at least one row");
  const std::int64_t piece = take_piece_rows(in, "input", *call.kernel, rows);
  MFSDP_TRY(in.result());
  if (auto sums = grid_sums<Real<T>>(*call.kernel)) {
    exact_rms_norm_backward(k, piece, *sums);
    return exact_result(*sums, *call.kernel, "partials");
  }
  rms_norm_backward(k);
  return {};
}

/// Column sums of `role` with `row` to hold one.
template <class T, class G>
Result<void> sum_columns(OperandReader& in, const Kernel& kernel, std::string_view role,
                         std::int64_t rows, std::int64_t cols, Real<T>* row) {
  const auto* values = in.take<const T>(role, {rows, cols});
  auto* out = in.take<G>("weight_grad", {cols});
  const bool adds = in.attribute("beta") != 0;
  const std::int64_t piece = take_piece_rows(in, role, kernel, rows);
  if (rows < 1) in.complain(role, "expected at least one row");
  MFSDP_TRY(in.result());
  if (auto sums = grid_sums<Real<T>>(kernel)) {
    exact_column_sums(rows, cols, values, piece, row, adds, *sums, out);
    return exact_result(*sums, kernel, "weight_grad");
  }
  column_sums(rows, cols, values, row, adds, out);
  return {};
}

}  // namespace

Result<void> run_rms_norm_forward(const KernelCall& call, const KernelSettings& settings) {
  return with_type_of(call, "residual",
                      [&]<class T>(TypeTag<T>) { return forward<T>(call, settings); });
}

Result<void> run_rms_norm_backward(const KernelCall& call) {
  return with_type_of(call, "input", [&]<class T>(TypeTag<T>) { return backward<T>(call); });
}

Result<void> run_norm_weight_grad(const KernelCall& call) {
  return with_type_of(call, "weight_grad", [&]<class G>(TypeTag<G>) {
    OperandReader in(call);
    const std::int64_t rows = in.attribute("rows");
    const std::int64_t cols = in.attribute("cols");
    std::vector<Real<G>> sums(static_cast<std::size_t>(cols));
    return sum_columns<Real<G>, G>(in, *call.kernel, "partials", rows, cols, sums.data());
  });
}

Result<void> run_bias_grad(const KernelCall& call) {
  return with_type_of(call, "d_output", [&]<class T>(TypeTag<T>) {
    return with_type_beside<T>(call, "weight_grad", [&]<class G>(TypeTag<G>) {
      OperandReader in(call);
      const std::int64_t rows = in.attribute("rows");
      const std::int64_t cols = in.attribute("cols");
      const std::int64_t partial_rows = in.dim("partials", 0);
      auto* partials = in.take<Real<T>>("partials", {partial_rows, cols});
      if (partial_rows < 1) in.complain("partials", "expected at least one row");
      return sum_columns<T, G>(in, *call.kernel, "d_output", rows, cols, partials);
    });
  });
}

}  // namespace mfsdp::kernels
