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

template <class T>
[[nodiscard]] Result<Gemm<T, T>> take_gemm_forward(const KernelCall& call, const GemmSizes& s) {
  OperandReader in(call);
  Gemm<T, T> g{.rows = s.m, .cols = s.n, .inner = s.k};
  g.a = {.data = in.take<const T>("input", {s.m, s.k}), .row = s.k};
  g.b = {.data = in.take<const T>("weight", {s.n, s.k}), .row = s.k, .transposed = true};
  // The plan calls a bias "weight" too: the second one.
  g.bias = in.take_if_any<const T>("weight", {s.n}, 1);
  g.c = in.take<T>("output", {s.m, s.n});
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
  g.a = {.data = in.take<const T>("d_output", {s.m, s.n}), .row = s.n};
  g.b = {.data = in.take<const T>("weight", {s.n, s.k}), .row = s.k};
  g.c = in.take<T>("d_input", {s.m, s.k});
  g.adds = in.attribute("beta") != 0;
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
  g.a = {.data = in.take<const T>("d_output", {s.m, s.n}), .row = s.n, .transposed = true};
  g.b = {.data = in.take<const T>("input", {s.m, s.k}), .row = s.k};
  g.c = in.take<C>("weight_grad", {s.n, s.k});
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
