#include "core/runtime/calls/take_swiglu.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"
#include "verify/cpu/kernels/swiglu.hpp"

namespace mfsdp::kernels {
namespace {

template <class Gate>
Result<void> run_gated_forward(const KernelCall& call) {
  return with_type_of(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_swiglu_forward<T>(call));
    gated_forward<Gate>(k.rows, k.cols, k.gate_up, k.product);
    return {};
  });
}

template <class Gate>
Result<void> run_gated_backward(const KernelCall& call) {
  return with_type_of(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_swiglu_backward<T>(call));
    if (k.product != nullptr)
      gated_backward<Gate>(k.rows, k.cols, k.gate_up, k.product);
    else
      gated_backward<Gate>(k.rows, k.cols, k.gate_up, k.d_product);
    return {};
  });
}

}  // namespace

template <>
Result<void> run_kind<KernelKind::swiglu_forward>(const KernelCall& call,
                                                  const KernelSettings& /*settings*/) {
  return run_gated_forward<Silu>(call);
}
template <>
Result<void> run_kind<KernelKind::swiglu_backward>(const KernelCall& call,
                                                   const KernelSettings& /*settings*/) {
  return run_gated_backward<Silu>(call);
}
template <>
Result<void> run_kind<KernelKind::geglu_forward>(const KernelCall& call,
                                                 const KernelSettings& /*settings*/) {
  return run_gated_forward<GeluTanh>(call);
}
template <>
Result<void> run_kind<KernelKind::geglu_backward>(const KernelCall& call,
                                                  const KernelSettings& /*settings*/) {
  return run_gated_backward<GeluTanh>(call);
}

template <>
Result<void> run_kind<KernelKind::gelu_forward>(const KernelCall& call,
                                                const KernelSettings& /*settings*/) {
  return with_type_of(call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_gelu_forward<T>(call));
    gelu_forward(k.rows * k.cols, k.input, k.product);
    return {};
  });
}
template <>
Result<void> run_kind<KernelKind::gelu_backward>(const KernelCall& call,
                                                 const KernelSettings& /*settings*/) {
  return with_type_of(call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_gelu_backward<T>(call));
    if (k.product != nullptr)
      gelu_backward(k.rows * k.cols, k.input, k.product);
    else
      gelu_backward(k.rows * k.cols, k.input, k.d_product);
    return {};
  });
}

}  // namespace mfsdp::kernels
