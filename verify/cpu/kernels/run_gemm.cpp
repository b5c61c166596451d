#include <vector>

#include "core/runtime/calls/take_gemm.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/gemm.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp::kernels {
namespace {

/// Has a product widen into the plan's workspace, or into memory of its own where that is too small
/// for its `needed` elements: a plan need not know how a machine multiplies.
template <class T, class C, class Run>
Result<void> with_room(Gemm<T, C> g, std::int64_t needed, const Run& multiply) {
  std::vector<Real<T>> own;
  if (g.workspace.size() < static_cast<std::size_t>(needed) * sizeof(Real<T>)) {
    own.resize(static_cast<std::size_t>(needed));
    g.workspace = std::as_writable_bytes(std::span(own));
  }
  return multiply(g);
}

template <class T, class C>
Result<void> run(const Kernel& kernel, const Gemm<T, C>& product) {
  if (!product.pieces.grid)
    return with_room(product, gemm_workspace(product), [](const Gemm<T, C>& g) -> Result<void> {
      gemm(g);
      return {};
    });
  return with_room(product, tile_workspace(product.rows, product.cols, product.pieces.rows),
                   [&](const Gemm<T, C>& g) {
                     GridSums<Real<T>> sums(*g.pieces.grid);
                     exact_weight_gradient(g, sums);
                     return sums.result(kernel, "weight_grad");
                   });
}

}  // namespace

template <>
Result<void> run_kind<KernelKind::gemm>(const KernelCall& call,
                                        const KernelSettings& /*settings*/) {
  return with_gemm(AllElementTypes{}, call, [&](const auto& g) { return run(*call.kernel, g); });
}

}  // namespace mfsdp::kernels
