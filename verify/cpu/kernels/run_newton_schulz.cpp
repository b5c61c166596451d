#include "core/runtime/calls/newton_schulz.hpp"
#include "verify/cpu/kernels/newton_schulz.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp::kernels {

template <>
Result<void> run_kind<KernelKind::newton_schulz>(const KernelCall& call,
                                                 const KernelSettings& /*settings*/) {
  return with_type_of(call, "matrix", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_newton_schulz<T>(call));
    orthogonalise<T>(k.rows, k.cols, k.matrix);
    return {};
  });
}

}  // namespace mfsdp::kernels
