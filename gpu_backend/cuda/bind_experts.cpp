// Kernels of experts: routing, rows in the order of experts, and products of each with its rows.
#include <fmt/format.h>

#include "core/runtime/calls/take_attention.hpp"
#include "core/runtime/calls/take_experts.hpp"
#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/grouped_products.hpp"
#include "gpu_backend/cuda/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/sinks.hpp"

namespace mfsdp::cuda {
namespace {

Result<Launch> bind_product(const KernelCall& call, const BindTarget& to, std::string_view input) {
  return bind_by_type(call, input, [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(p, kernels::take_grouped_product<T>(call));
    return grouped_launch(p, to.stream);
  });
}

}  // namespace

template <>
Result<Launch> bind_kind<KernelKind::router_forward>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "logits", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_router_forward<T>(call));
    MFSDP_TRY(check_experts(k.sizes.experts));
    return [k, stream = to.stream] { return router_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::router_backward>(const KernelCall& call,
                                                      const BindTarget& to) {
  return bind_by_type(call, "logits", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_router_backward<T>(call));
    MFSDP_TRY(check_experts(k.sizes.experts));
    return [k, stream = to.stream] { return router_backward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::expert_order>(const KernelCall& call, const BindTarget& to) {
  MFSDP_LET(k, kernels::take_expert_order(call));
  MFSDP_TRY(check_experts(k.sizes.experts));
  MFSDP_TRY(check_order_workspace(expert_order_workspace(k.sizes),
                                  static_cast<std::int64_t>(k.workspace.size())));
  return [k, stream = to.stream] { return expert_order(k, stream); };
}

template <>
Result<Launch> bind_kind<KernelKind::peer_order>(const KernelCall& call, const BindTarget& to) {
  MFSDP_LET(k, kernels::take_peer_order(call));
  return [k, outlier = to.outlier, stream = to.stream] { return peer_order(k, outlier, stream); };
}

template <>
Result<Launch> bind_kind<KernelKind::arrival_order>(const KernelCall& call, const BindTarget& to) {
  MFSDP_LET(k, kernels::take_arrival_order(call));
  MFSDP_TRY(check_experts(k.experts * k.peers));
  return [k, stream = to.stream] { return arrival_order(k, stream); };
}

template <>
Result<Launch> bind_kind<KernelKind::permute_rows>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_permute_rows<T>(call));
    return [k, stream = to.stream] { return permute_rows(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::combine_rows>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_combine_rows<T>(call));
    return [k, stream = to.stream] { return combine_rows(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::grouped_product>(const KernelCall& call,
                                                      const BindTarget& to) {
  return bind_product(call, to, "input");
}

template <>
Result<Launch> bind_kind<KernelKind::grouped_input_gradient>(const KernelCall& call,
                                                             const BindTarget& to) {
  return bind_product(call, to, "d_output");
}

template <>
Result<Launch> bind_kind<KernelKind::grouped_weight_gradient>(const KernelCall& call,
                                                              const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    return bind_by_type(GradientTypes<T>{}, call, "weight_grad",
                        [&]<class G>(TypeTag<G>) -> Result<Launch> {
                          MFSDP_LET(p, (kernels::take_grouped_weight_gradient<T, G>(call)));
                          return grouped_launch(p, to.stream, to.outlier);
                        });
  });
}

template <>
Result<Launch> bind_kind<KernelKind::weighted_swiglu_forward>(const KernelCall& call,
                                                              const BindTarget& to) {
  return bind_by_type(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_weighted_swiglu_forward<T>(call));
    return [k, stream = to.stream] { return weighted_swiglu_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::weighted_swiglu_backward>(const KernelCall& call,
                                                               const BindTarget& to) {
  return bind_by_type(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_weighted_swiglu_backward<T>(call));
    return [k, stream = to.stream] { return weighted_swiglu_backward(k, stream); };
  });
}

// The gate of an expert that all tokens share (Qwen2-MoE); sinks and biases of experts (GPT-OSS).

template <>
Result<Launch> bind_kind<KernelKind::sigmoid_forward>(const KernelCall& call,
                                                      const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_sigmoid_forward<T>(call));
    return [k, stream = to.stream] { return sigmoid_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::sigmoid_backward>(const KernelCall& call,
                                                       const BindTarget& to) {
  return bind_by_type(call, "d_input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_sigmoid_backward<T>(call));
    return [k, stream = to.stream] { return sigmoid_backward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::expert_bias_forward>(const KernelCall& call,
                                                          const BindTarget& to) {
  return bind_by_type(call, "output", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_expert_bias_forward<T>(call));
    return [k, stream = to.stream] { return expert_bias_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::expert_bias_dots>(const KernelCall& call,
                                                       const BindTarget& to) {
  return bind_by_type(call, "d_output", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_expert_bias_dots<T>(call));
    return [k, stream = to.stream] { return expert_bias_dots(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::expert_bias_gradient>(const KernelCall& call,
                                                           const BindTarget& to) {
  return bind_by_type(call, "d_output", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    return bind_by_type(GradientTypes<T>{}, call, "weight_grad",
                        [&]<class G>(TypeTag<G>) -> Result<Launch> {
                          MFSDP_LET(k, (kernels::take_expert_bias_gradient<T, G>(call)));
                          return [k, outlier = to.outlier, stream = to.stream] {
                            return expert_bias_gradient(k, stream, outlier);
                          };
                        });
  });
}

template <>
Result<Launch> bind_kind<KernelKind::sink_forward>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "output", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_sink_forward<T>(call));
    return [k, stream = to.stream] { return sink_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::sink_backward>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "output", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_sink_backward<T>(call));
    return [k, stream = to.stream] { return sink_backward(k, stream); };
  });
}

}  // namespace mfsdp::cuda
