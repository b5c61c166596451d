#include <fmt/format.h>

#include "core/runtime/calls/take_gemm.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/gemm.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp::kernels {
namespace {

/// The workspace holds the `needed` elements of type R that a product widens into.
template <class R>
Result<void> check_workspace(std::span<const std::byte> workspace, std::int64_t needed) {
  const std::size_t bytes = static_cast<std::size_t>(needed) * sizeof(R);
  if (workspace.size() >= bytes) return {};
  return fail("kernel gemm: operand workspace",
              fmt::format("expected at least {} bytes, got {}", bytes, workspace.size()));
}

template <class T, class C>
Result<void> run(const Kernel& kernel, const Gemm<T, C>& g) {
  if (!g.pieces.grid) {
    MFSDP_TRY(check_workspace<Real<T>>(g.workspace, gemm_workspace<T, C>(g.rows, g.cols, g.inner)));
    gemm(g);
    return {};
  }
  MFSDP_TRY(check_workspace<Real<T>>(g.workspace, tile_workspace(g.rows, g.cols, g.pieces.rows)));
  GridSums<Real<T>> sums(*g.pieces.grid);
  exact_weight_gradient(g, sums);
  return sums.result(kernel, "weight_grad");
}

}  // namespace

template <>
Result<void> run_kind<KernelKind::gemm>(const KernelCall& call,
                                        const KernelSettings& /*settings*/) {
  return with_gemm(AllElementTypes{}, call, [&](const auto& g) { return run(*call.kernel, g); });
}

}  // namespace mfsdp::kernels
