// From a call to the struct of gemm.hpp. Errors name the operand and what was expected.
#pragma once

#include <fmt/format.h>

#include "core/runtime/calls/gemm.hpp"
#include "core/runtime/calls/take_pieces.hpp"
#include "core/runtime/calls/take_workspace.hpp"

namespace mfsdp::kernels {

/// Sizes of a linear layer's product.
struct GemmSizes {
  GemmKind kind = GemmKind::forward;
  std::int64_t m = 0;  ///< tokens
  std::int64_t n = 0;  ///< output features
  std::int64_t k = 0;  ///< input features
};

[[nodiscard]] inline Result<GemmSizes> take_gemm_sizes(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t number = in.attribute("kind");
  const std::optional<GemmKind> kind = gemm_kind(*call.kernel);
  const GemmSizes sizes{.kind = kind.value_or(GemmKind::forward),
                        .m = in.attribute("m"),
                        .n = in.attribute("n"),
                        .k = in.attribute("k")};
  MFSDP_TRY(in.result());
  if (kind) return sizes;
  return fail("kernel gemm", fmt::format("attribute kind: expected 0, 1 or 2, got {}", number));
}

/// A matrix [rows, cols] that may be columns of wider rows.
template <class T>
[[nodiscard]] Matrix<T> take_columns(OperandReader& in, std::string_view role, std::int64_t rows,
                                     std::int64_t cols) {
  const OperandView* view = in.strided<T>(role, {rows, cols});
  if (view == nullptr) return {};
  const std::int64_t row = rows == 1 ? cols : view->strides[0];
  if (row < cols) in.complain(role, "expected rows that do not overlap");
  return {.data = OperandReader::data<T>(view), .row = row};
}

/// 1 where the kernel has no such attribute.
template <class T>
[[nodiscard]] Real<T> take_scale(OperandReader& in, const KernelCall& call) {
  if (call.kernel->find_attribute("scale") == nullptr) return 1;
  return static_cast<Real<T>>(in.number("scale"));
}

template <class T>
[[nodiscard]] Result<Gemm<T, T>> take_gemm_forward(const KernelCall& call, const GemmSizes& s) {
  OperandReader in(call);
  Gemm<T, T> g{.rows = s.m, .cols = s.n, .inner = s.k};
  g.a = {.data = in.take<const T>("input", {s.m, s.k}), .row = s.k};
  g.b = {.data = in.take<const T>("weight", {s.n, s.k}), .row = s.k, .transposed = true};
  // The plan calls a bias "weight" too: the second one.
  g.bias = in.take_if_any<const T>("weight", {s.n}, 1);
  const Matrix<T> out = take_columns<T>(in, "output", s.m, s.n);
  g.c = out.data;
  if (out.row != s.n) g.c_row = out.row;
  g.adds = in.attribute("beta") != 0;
  g.scale = take_scale<T>(in, call);
  g.piece_rows = take_piece_rows(in, "workspace", *call.kernel, s.m);
  g.workspace = take_workspace_if_any(in);
  MFSDP_TRY(in.result());
  return g;
}

template <class T>
[[nodiscard]] Result<Gemm<T, T>> take_gemm_input_gradient(const KernelCall& call,
                                                          const GemmSizes& s) {
  OperandReader in(call);
  Gemm<T, T> g{.rows = s.m, .cols = s.k, .inner = s.n};
  g.a = take_columns<const T>(in, "d_output", s.m, s.n);
  g.b = {.data = in.take<const T>("weight", {s.n, s.k}), .row = s.k};
  g.c = in.take<T>("d_input", {s.m, s.k});
  g.adds = in.attribute("beta") != 0;
  g.scale = take_scale<T>(in, call);
  g.piece_rows = take_piece_rows(in, "workspace", *call.kernel, s.m);
  g.workspace = take_workspace_if_any(in);
  MFSDP_TRY(in.result());
  return g;
}

template <class T, class C>
[[nodiscard]] Result<Gemm<T, C>> take_gemm_weight_gradient(const KernelCall& call,
                                                           const GemmSizes& s) {
  OperandReader in(call);
  Gemm<T, C> g{.rows = s.n, .cols = s.k, .inner = s.m};
  g.a = take_columns<const T>(in, "d_output", s.m, s.n);
  g.a.transposed = true;
  g.b = {.data = in.take<const T>("input", {s.m, s.k}), .row = s.k};
  g.c = in.take<C>("weight_grad", {s.n, s.k});
  g.scale = take_scale<T>(in, call);
  g.adds = in.attribute("beta") != 0;
  g.pieces = take_pieces(in, "input", *call.kernel, s.m);
  g.workspace = take_workspace_if_any(in);
  MFSDP_TRY(in.result());
  return g;
}

/// Takes the call's product with the element types that it has and calls `run` with it; where they
/// are the same for all three kinds, so is the product's type.
template <class Types, class Run>
[[nodiscard]] Result<void> with_gemm(Types types, const KernelCall& call, const Run& run) {
  MFSDP_LET(sizes, take_gemm_sizes(call));
  switch (sizes.kind) {
    case GemmKind::forward:
      return with_type_of(types, call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
        MFSDP_LET(g, take_gemm_forward<T>(call, sizes));
        return run(g);
      });
    case GemmKind::input_gradient:
      return with_type_of(types, call, "d_output", [&]<class T>(TypeTag<T>) -> Result<void> {
        MFSDP_LET(g, take_gemm_input_gradient<T>(call, sizes));
        return run(g);
      });
    case GemmKind::weight_gradient: break;
  }
  return with_type_of(types, call, "input", [&]<class T>(TypeTag<T>) {
    return with_type_beside<T>(types, call, "weight_grad",
                               [&]<class C>(TypeTag<C>) -> Result<void> {
                                 MFSDP_LET(g, (take_gemm_weight_gradient<T, C>(call, sizes)));
                                 return run(g);
                               });
  });
}

}  // namespace mfsdp::kernels
