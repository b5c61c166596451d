#include "core/runtime/calls/take_swiglu.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"
#include "verify/cpu/kernels/swiglu.hpp"

namespace mfsdp::kernels {

template <>
Result<void> run_kind<KernelKind::swiglu_forward>(const KernelCall& call,
                                                  const KernelSettings& /*settings*/) {
  return with_type_of(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_swiglu_forward<T>(call));
    swiglu_forward(k.rows, k.cols, k.gate_up, k.product);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::swiglu_backward>(const KernelCall& call,
                                                   const KernelSettings& /*settings*/) {
  return with_type_of(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_swiglu_backward<T>(call));
    if (k.product != nullptr)
      swiglu_backward(k.rows, k.cols, k.gate_up, k.product);
    else
      swiglu_backward(k.rows, k.cols, k.gate_up, k.d_product);
    return {};
  });
}

}  // namespace mfsdp::kernels
