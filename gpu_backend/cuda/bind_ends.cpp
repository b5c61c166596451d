// Kernels at the ends of a step: tokens, the embedding, sums into gradients, loss and norm.
#include "core/runtime/calls/take_sums.hpp"
#include "core/runtime/calls/take_tokens.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"
#include "gpu_backend/cuda/kernels/sums.hpp"
#include "gpu_backend/cuda/kernels/tokens.hpp"

namespace mfsdp::cuda {

Result<Launch> bind_token_copy(const KernelCall& call, cudaStream_t stream) {
  MFSDP_LET(k, kernels::take_token_copy(call));
  return [k, stream] { return token_copy(k, stream); };
}

Result<Launch> bind_embedding_forward(const KernelCall& call, cudaStream_t stream) {
  return bind_by_type(call, "weight", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_embedding_forward<T>(call));
    return [k, stream] { return embedding_forward(k, stream); };
  });
}

Result<Launch> bind_embedding_backward(const KernelCall& call, ExactOutlier* outlier,
                                       cudaStream_t stream) {
  return bind_by_type(call, "d_output", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    return bind_by_type(call, "weight_grad", [&]<class G>(TypeTag<G>) -> Result<Launch> {
      MFSDP_LET(k, (kernels::take_embedding_backward<T, G>(call)));
      return [k, outlier, stream] { return embedding_backward(k, stream, outlier); };
    });
  });
}

Result<Launch> bind_accumulate(const KernelCall& call, ExactOutlier* outlier, cudaStream_t stream) {
  return bind_by_type(call, "input", [&]<class In>(TypeTag<In>) -> Result<Launch> {
    return bind_by_type(call, kernels::accumulate_output(call),
                        [&]<class Out>(TypeTag<Out>) -> Result<Launch> {
                          MFSDP_LET(k, (kernels::take_accumulate<In, Out>(call)));
                          return [k, outlier, stream] { return accumulate(k, stream, outlier); };
                        });
  });
}

Result<Launch> bind_zero_padding(const KernelCall& call, cudaStream_t stream) {
  MFSDP_LET(k, kernels::take_zero_padding(call));
  return [k, stream] { return zero_padding(k, stream); };
}

Result<Launch> bind_loss_finish(const KernelCall& call, cudaStream_t stream) {
  MFSDP_LET(k, kernels::take_loss_finish<float>(call));
  return [k, stream] { return loss_finish(k, stream); };
}

Result<Launch> bind_norm_partial(const KernelCall& call, ExactOutlier* outlier,
                                 cudaStream_t stream) {
  if (kernels::has_exact_partials(call, "output")) {
    MFSDP_LET(k, kernels::take_exact_norm_partial(call));
    return [k, outlier, stream] { return exact_norm_partial(k, stream, outlier); };
  }
  return bind_by_type(call, "input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_norm_partial<T>(call));
    return [k, stream] { return norm_partial(k, stream); };
  });
}

Result<Launch> bind_norm_finish(const KernelCall& call, ExactOutlier* outlier,
                                cudaStream_t stream) {
  MFSDP_LET(k, kernels::take_norm_finish(call));
  return [k, outlier, stream] { return norm_finish(k, stream, outlier); };
}

}  // namespace mfsdp::cuda
