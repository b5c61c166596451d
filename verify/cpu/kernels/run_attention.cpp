#include "core/runtime/calls/take_attention.hpp"
#include "verify/cpu/kernels/attention.hpp"
#include "verify/cpu/kernels/check_positions.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp::kernels {
template <>
Result<void> run_kind<KernelKind::attention_forward>(const KernelCall& call,
                                                     const KernelSettings& /*settings*/) {
  return with_type_of(call, "query", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_attention_forward<T>(call));
    MFSDP_TRY(check_documents(*call.kernel, k.shape));
    attention_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::attention_backward>(const KernelCall& call,
                                                      const KernelSettings& /*settings*/) {
  return with_type_of(call, "query", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_attention_backward<T>(call));
    MFSDP_TRY(check_documents(*call.kernel, k.shape));
    attention_backward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::sink_forward>(const KernelCall& call,
                                                const KernelSettings& /*settings*/) {
  return with_type_of(call, "output", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_sink_forward<T>(call));
    sink_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::sink_backward>(const KernelCall& call,
                                                 const KernelSettings& /*settings*/) {
  return with_type_of(call, "output", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_sink_backward<T>(call));
    sink_backward(k);
    return {};
  });
}

}  // namespace mfsdp::kernels
