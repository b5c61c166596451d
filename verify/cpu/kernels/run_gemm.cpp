#include "verify/cpu/kernels/bindings.hpp"
#include "verify/cpu/kernels/gemm.hpp"
#include "verify/cpu/kernels/operand_reader.hpp"
#include "verify/cpu/kernels/pieces.hpp"

namespace mfsdp::kernels {
namespace {

/// The attribute "kind" of a GEMM.
enum class GemmKind { forward = 0, input_gradient = 1, weight_gradient = 2 };

/// The plan's GEMM workspace as the `needed` floats, or more, that a product widens into.
template <class R>
std::span<R> take_workspace(OperandReader& in, std::int64_t needed) {
  const std::int64_t needed_bytes = needed * static_cast<std::int64_t>(sizeof(R));
  const std::int64_t bytes = in.dim("workspace", 0);
  auto* data = in.take<std::uint8_t>("workspace", {bytes});
  if (bytes < needed_bytes)
    in.complain("workspace",
                fmt::format("expected at least {} bytes, got {}", needed_bytes, bytes));
  return {reinterpret_cast<R*>(data), static_cast<std::size_t>(bytes) / sizeof(R)};
}

/// A product whose rows are tokens: those of one piece are as many as the library is given at once.
template <class T>
Result<void> finish(OperandReader& in, const Kernel& kernel, Gemm<T, T> g) {
  g.piece_rows = take_piece_rows(in, "workspace", kernel, g.rows);
  g.workspace = take_workspace<Real<T>>(in, gemm_workspace<T, T>(g.rows, g.cols, g.inner));
  MFSDP_TRY(in.result());
  gemm(g);
  return {};
}

template <class T>
Result<void> run_forward(OperandReader& in, const Kernel& kernel, std::int64_t m, std::int64_t n,
                         std::int64_t k) {
  Gemm<T, T> g{.rows = m, .cols = n, .inner = k};
  g.a = {.data = in.take<const T>("input", {m, k}), .row = k};
  g.b = {.data = in.take<const T>("weight", {n, k}), .row = k, .transposed = true};
  // The plan calls a bias "weight" too: the second one.
  g.bias = in.take_if_any<const T>("weight", {n}, 1);
  g.c = in.take<T>("output", {m, n});
  return finish(in, kernel, g);
}

template <class T>
Result<void> run_input_gradient(OperandReader& in, const Kernel& kernel, std::int64_t m,
                                std::int64_t n, std::int64_t k) {
  Gemm<T, T> g{.rows = m, .cols = k, .inner = n};
  g.a = {.data = in.take<const T>("d_output", {m, n}), .row = n};
  g.b = {.data = in.take<const T>("weight", {n, k}), .row = k};
  g.c = in.take<T>("d_input", {m, k});
  return finish(in, kernel, g);
}

template <class T, class C>
Result<void> run_weight_gradient(OperandReader& in, const Kernel& kernel, std::int64_t m,
                                 std::int64_t n, std::int64_t k, bool adds) {
  Gemm<T, C> g{.rows = n, .cols = k, .inner = m};
  g.a = {.data = in.take<const T>("d_output", {m, n}), .row = n, .transposed = true};
  g.b = {.data = in.take<const T>("input", {m, k}), .row = k};
  g.c = in.take<C>("weight_grad", {n, k});
  g.adds = adds;
  const std::int64_t piece = take_piece_rows(in, "input", kernel, m);
  auto sums = grid_sums<Real<T>>(kernel);
  g.workspace = take_workspace<Real<T>>(
      in, sums ? tile_workspace(n, k, piece) : gemm_workspace<T, C>(n, k, m));
  MFSDP_TRY(in.result());
  if (sums) {
    exact_weight_gradient(g, piece, *sums);
    return exact_result(*sums, kernel, "weight_grad");
  }
  gemm(g);
  return {};
}

}  // namespace

Result<void> run_gemm(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t m = in.attribute("m");
  const std::int64_t n = in.attribute("n");
  const std::int64_t k = in.attribute("k");
  const bool adds = in.attribute("beta") != 0;
  const std::int64_t kind = in.attribute("kind");
  MFSDP_TRY(in.result());
  switch (static_cast<GemmKind>(kind)) {
    case GemmKind::forward:
      return with_type_of(call, "input", [&]<class T>(TypeTag<T>) {
        return run_forward<T>(in, *call.kernel, m, n, k);
      });
    case GemmKind::input_gradient:
      return with_type_of(call, "d_output", [&]<class T>(TypeTag<T>) {
        return run_input_gradient<T>(in, *call.kernel, m, n, k);
      });
    case GemmKind::weight_gradient:
      return with_type_of(call, "input", [&]<class T>(TypeTag<T>) {
        return with_type_beside<T>(call, "weight_grad", [&]<class C>(TypeTag<C>) {
          return run_weight_gradient<T, C>(in, *call.kernel, m, n, k, adds);
        });
      });
  }
  return fail("kernel gemm", fmt::format("attribute kind: expected 0, 1 or 2, got {}", kind));
}

}  // namespace mfsdp::kernels
