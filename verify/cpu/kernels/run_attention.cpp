#include "core/runtime/calls/take_attention.hpp"
#include "verify/cpu/kernels/attention.hpp"
#include "verify/cpu/kernels/bindings.hpp"

namespace mfsdp::kernels {

Result<void> run_attention_forward(const KernelCall& call) {
  return with_type_of(call, "query", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_attention_forward<T>(call));
    attention_forward(k);
    return {};
  });
}

Result<void> run_attention_backward(const KernelCall& call) {
  return with_type_of(call, "query", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_attention_backward<T>(call));
    attention_backward(k);
    return {};
  });
}

}  // namespace mfsdp::kernels
