// Kernels that go row by row, or element by element: norms, rotary embedding, SwiGLU.
#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/kernels/head_groups.hpp"
#include "gpu_backend/cuda/kernels/latent.hpp"
#include "gpu_backend/cuda/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/ring.hpp"
#include "gpu_backend/cuda/kernels/rope.hpp"
#include "gpu_backend/cuda/kernels/swiglu.hpp"

namespace mfsdp::cuda {

template <>
Result<Launch> bind_kind(const KernelBinding<K::rms_norm_forward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return rms_norm_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::rms_norm_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return rms_norm_backward(k, stream, outlier);
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::layer_norm_forward>& to) {
  return to.launch(
      [](const auto& k, cudaStream_t stream) { return layer_norm_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::layer_norm_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return layer_norm_backward(k, stream, outlier);
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::norm_weight_grad>& to) {
  return to.launch([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return column_sums(k, stream, outlier);
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::bias_grad>& to) {
  return to.launch([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return column_sums(k, stream, outlier);
  });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::split_heads>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return split_heads(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::join_heads>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return join_heads(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::take_keys>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return take_keys(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::join_keys>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return join_keys(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::attention_merge>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return attention_merge(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::add_rows>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return add_rows(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::join_key_parts>& /*to*/) {
  return fail("kernel join_key_parts",
              "is not run on GPUs: expected no more ranks on tp than key-value heads");
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::split_key_parts>& /*to*/) {
  return fail("kernel split_key_parts",
              "is not run on GPUs: expected no more ranks on tp than key-value heads");
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::rope_forward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return rope(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::rope_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return rope(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::qk_norm_rope_forward>& to) {
  return to.launch(
      [](const auto& k, cudaStream_t stream) { return qk_norm_rope_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::qk_norm_rope_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return qk_norm_rope_backward(k, stream, outlier);
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::qk_row_norm_rope_forward>& to) {
  return to.launch(
      [](const auto& k, cudaStream_t stream) { return qk_row_norm_rope_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::qk_row_norm_rope_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return qk_row_norm_rope_backward(k, stream, outlier);
  });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::swiglu_forward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return swiglu_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::swiglu_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return swiglu_backward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::geglu_forward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return geglu_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::geglu_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return geglu_backward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::gelu_forward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return gelu_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::gelu_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return gelu_backward(k, stream); });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::latent_heads_forward>& to) {
  return to.launch(
      [](const auto& k, cudaStream_t stream) { return latent_heads_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::latent_heads_backward>& to) {
  return to.launch(
      [](const auto& k, cudaStream_t stream) { return latent_heads_backward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::latent_norm_forward>& to) {
  return to.launch(
      [](const auto& k, cudaStream_t stream) { return latent_norm_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::latent_norm_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return latent_norm_backward(k, stream, outlier);
  });
}

}  // namespace mfsdp::cuda
