#include <vector>

#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/gemm.hpp"
#include "verify/cpu/kernels/run_kind.hpp"

namespace mfsdp::kernels {
namespace {

/// Gives a GEMM the plan's workspace, or memory of its own where that is too small for the `needed`
/// elements that it widens: a plan need not know how a machine multiplies.
template <class T, class C, class Multiply>
void with_room(Gemm<T, C> g, std::int64_t needed, const Multiply& multiply) {
  std::vector<Real<T>> own;
  if (g.workspace.size() < static_cast<std::size_t>(needed) * sizeof(Real<T>)) {
    own.resize(static_cast<std::size_t>(needed));
    g.workspace = std::as_writable_bytes(std::span(own));
  }
  multiply(g);
}

}  // namespace

template <>
Result<void> run_kind(const KernelRun<K::gemm>& run) {
  return with_gemm(run.call, [&]<class T, class C>(const Gemm<T, C>& k) {
    return with_grid<Real<T>>(
        k.pieces.grid, run.kernel(), "weight_grad", [&](GridSums<Real<T>>* sums) {
          if (sums == nullptr)
            with_room(k, gemm_workspace(k), [](const Gemm<T, C>& g) { gemm(g); });
          else
            with_room(k, tile_workspace(k.rows, k.cols, k.pieces.rows),
                      [&](const Gemm<T, C>& g) { exact_weight_gradient(g, *sums); });
        });
  });
}

}  // namespace mfsdp::kernels
