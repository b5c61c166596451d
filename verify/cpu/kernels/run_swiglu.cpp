#include "verify/cpu/kernels/fp8.hpp"
#include "verify/cpu/kernels/run_kind.hpp"
#include "verify/cpu/kernels/swiglu.hpp"

namespace mfsdp::kernels {
namespace {

template <class Gate, KernelKind kind>
Result<void> run_gated_forward(const KernelRun<kind>& run) {
  return run([](const auto& k) {
    gated_forward<Gate>(k.rows, k.cols, k.gate_up, k.product);
    if (k.amax != nullptr) *k.amax = largest_magnitude(k.product, k.rows * k.cols);
  });
}

template <class Gate, KernelKind kind>
Result<void> run_gated_backward(const KernelRun<kind>& run) {
  return run([](const auto& k) {
    if (k.product != nullptr)
      gated_backward<Gate>(k.rows, k.cols, k.gate_up, k.product);
    else
      gated_backward<Gate>(k.rows, k.cols, k.gate_up, k.d_product);
    if (k.amax != nullptr) *k.amax = largest_magnitude(k.gate_up, 2 * k.rows * k.cols);
  });
}

}  // namespace

template <>
Result<void> run_kind(const KernelRun<K::swiglu_forward>& run) {
  return run_gated_forward<Silu>(run);
}
template <>
Result<void> run_kind(const KernelRun<K::swiglu_backward>& run) {
  return run_gated_backward<Silu>(run);
}
template <>
Result<void> run_kind(const KernelRun<K::geglu_forward>& run) {
  return run_gated_forward<GeluTanh>(run);
}
template <>
Result<void> run_kind(const KernelRun<K::geglu_backward>& run) {
  return run_gated_backward<GeluTanh>(run);
}

template <>
Result<void> run_kind(const KernelRun<K::gelu_forward>& run) {
  return run([](const auto& k) { gelu_forward(k.rows * k.cols, k.input, k.product); });
}
template <>
Result<void> run_kind(const KernelRun<K::gelu_backward>& run) {
  return run([](const auto& k) {
    if (k.product != nullptr)
      gelu_backward(k.rows * k.cols, k.input, k.product);
    else
      gelu_backward(k.rows * k.cols, k.input, k.d_product);
  });
}

}  // namespace mfsdp::kernels
