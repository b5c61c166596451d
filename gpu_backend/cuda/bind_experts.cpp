// Kernels of experts: routing, rows in the order of experts, and grouped GEMMs; attention sinks.
#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/grouped_products.hpp"
#include "gpu_backend/cuda/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/sinks.hpp"

namespace mfsdp::cuda {

template <>
Result<Launch> bind_kind(const KernelBinding<K::router_forward>& to) {
  return to.bind([&](const auto& k) -> Result<Launch> {
    MFSDP_TRY(check_experts(k.sizes.experts));
    return [k, stream = to.stream] { return router_forward(k, stream); };
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::router_backward>& to) {
  return to.bind([&](const auto& k) -> Result<Launch> {
    MFSDP_TRY(check_experts(k.sizes.experts));
    return [k, stream = to.stream] { return router_backward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::expert_order>& to) {
  return to.bind([&](const kernels::ExpertOrder& k) -> Result<Launch> {
    MFSDP_TRY(check_experts(k.sizes.experts));
    MFSDP_TRY(check_order_workspace(expert_order_workspace(k.sizes),
                                    static_cast<std::int64_t>(k.workspace.size())));
    return [k, stream = to.stream] { return expert_order(k, stream); };
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::peer_order>& to) {
  return to.launch([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return peer_order(k, outlier, stream);
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::arrival_order>& to) {
  return to.bind([&](const kernels::ArrivalOrder& k) -> Result<Launch> {
    MFSDP_TRY(check_experts(k.experts * k.peers));
    return [k, stream = to.stream] { return arrival_order(k, stream); };
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::permute_rows>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return permute_rows(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::combine_rows>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return combine_rows(k, stream); });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::grouped_product>& to) {
  return to.bind([&]<class T>(const kernels::GroupedProduct<T>& k) -> Result<Launch> {
    return grouped_launch(k, to.stream);
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::grouped_input_gradient>& to) {
  return to.bind([&]<class T>(const kernels::GroupedProduct<T>& k) -> Result<Launch> {
    return grouped_launch(k, to.stream);
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::grouped_weight_gradient>& to) {
  return to.bind(
      [&](const auto& k) -> Result<Launch> { return grouped_launch(k, to.stream, to.outlier); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::weighted_swiglu_forward>& to) {
  return to.launch(
      [](const auto& k, cudaStream_t stream) { return weighted_swiglu_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::weighted_swiglu_backward>& to) {
  return to.launch(
      [](const auto& k, cudaStream_t stream) { return weighted_swiglu_backward(k, stream); });
}

// The gate of an expert that all tokens share (Qwen2-MoE); sinks and biases of experts (GPT-OSS).

template <>
Result<Launch> bind_kind(const KernelBinding<K::sigmoid_forward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return sigmoid_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::sigmoid_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return sigmoid_backward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::add_bias>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return add_bias(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::expert_bias_forward>& to) {
  return to.launch(
      [](const auto& k, cudaStream_t stream) { return expert_bias_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::expert_bias_dots>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return expert_bias_dots(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::expert_bias_gradient>& to) {
  return to.launch([](const auto& k, cudaStream_t stream, ExactOutlier* outlier) {
    return expert_bias_gradient(k, stream, outlier);
  });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::sink_forward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return sink_forward(k, stream); });
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::sink_backward>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return sink_backward(k, stream); });
}

}  // namespace mfsdp::cuda
