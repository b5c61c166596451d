// What latent attention has beside others.
#include "core/runtime/calls/take_attention.hpp"
#include "core/runtime/calls/take_norm.hpp"
#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/kernels/latent.hpp"

namespace mfsdp::cuda {

template <>
Result<Launch> bind_kind<KernelKind::latent_heads_forward>(const KernelCall& call,
                                                           const BindTarget& to) {
  return bind_by_type(call, "query", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_latent_heads_forward<T>(call));
    return [k, stream = to.stream] { return latent_heads_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::latent_heads_backward>(const KernelCall& call,
                                                            const BindTarget& to) {
  return bind_by_type(call, "d_output", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_latent_heads_backward<T>(call));
    return [k, stream = to.stream] { return latent_heads_backward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::latent_norm_forward>(const KernelCall& call,
                                                          const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_latent_norm_forward<T>(call));
    return [k, stream = to.stream] { return latent_norm_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::latent_norm_backward>(const KernelCall& call,
                                                           const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_latent_norm_backward<T>(call));
    return [k, outlier = to.outlier, stream = to.stream] {
      return latent_norm_backward(k, stream, outlier);
    };
  });
}

}  // namespace mfsdp::cuda
