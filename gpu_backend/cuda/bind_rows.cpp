// Kernels that go row by row, or element by element: norms, rotary embedding, SwiGLU.
#include "core/runtime/calls/take_norm.hpp"
#include "core/runtime/calls/take_rope.hpp"
#include "core/runtime/calls/take_swiglu.hpp"
#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/rope.hpp"
#include "gpu_backend/cuda/kernels/swiglu.hpp"

namespace mfsdp::cuda {
namespace {

Result<Launch> bind_rope(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, kernels::rope_role(*call.kernel),
                      [&]<class T>(TypeTag<T>) -> Result<Launch> {
                        MFSDP_LET(k, kernels::take_rope<T>(call));
                        return [k, stream = to.stream] { return rope(k, stream); };
                      });
}

}  // namespace

template <>
Result<Launch> bind_kind<KernelKind::rms_norm_forward>(const KernelCall& call,
                                                       const BindTarget& to) {
  return bind_by_type(call, "residual", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_rms_norm_forward<T>(call));
    return [k, stream = to.stream] { return rms_norm_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::rms_norm_backward>(const KernelCall& call,
                                                        const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_rms_norm_backward<T>(call));
    return [k, outlier = to.outlier, stream = to.stream] {
      return rms_norm_backward(k, stream, outlier);
    };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::norm_weight_grad>(const KernelCall& call,
                                                       const BindTarget& to) {
  return bind_by_type(call, "weight_grad", [&]<class G>(TypeTag<G>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_norm_weight_grad<G>(call));
    return
        [k, outlier = to.outlier, stream = to.stream] { return column_sums(k, stream, outlier); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::bias_grad>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "d_output", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    return bind_by_type(GradientTypes<T>{}, call, "weight_grad",
                        [&]<class G>(TypeTag<G>) -> Result<Launch> {
                          MFSDP_LET(k, (kernels::take_bias_grad<T, G>(call)));
                          return [k, outlier = to.outlier, stream = to.stream] {
                            return column_sums(k, stream, outlier);
                          };
                        });
  });
}

template <>
Result<Launch> bind_kind<KernelKind::rope_forward>(const KernelCall& call, const BindTarget& to) {
  return bind_rope(call, to);
}

template <>
Result<Launch> bind_kind<KernelKind::rope_backward>(const KernelCall& call, const BindTarget& to) {
  return bind_rope(call, to);
}

template <>
Result<Launch> bind_kind<KernelKind::qk_norm_rope_forward>(const KernelCall& call,
                                                           const BindTarget& to) {
  return bind_by_type(call, "query_key", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_qk_norm_rope_forward<T>(call));
    return [k, stream = to.stream] { return qk_norm_rope_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::qk_norm_rope_backward>(const KernelCall& call,
                                                            const BindTarget& to) {
  return bind_by_type(call, "query_key", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_qk_norm_rope_backward<T>(call));
    return [k, outlier = to.outlier, stream = to.stream] {
      return qk_norm_rope_backward(k, stream, outlier);
    };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::swiglu_forward>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_swiglu_forward<T>(call));
    return [k, stream = to.stream] { return swiglu_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::swiglu_backward>(const KernelCall& call,
                                                      const BindTarget& to) {
  return bind_by_type(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_swiglu_backward<T>(call));
    return [k, stream = to.stream] { return swiglu_backward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::geglu_forward>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_swiglu_forward<T>(call));
    return [k, stream = to.stream] { return geglu_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::geglu_backward>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_swiglu_backward<T>(call));
    return [k, stream = to.stream] { return geglu_backward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::gelu_forward>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_gelu_forward<T>(call));
    return [k, stream = to.stream] { return gelu_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::gelu_backward>(const KernelCall& call, const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_gelu_backward<T>(call));
    return [k, stream = to.stream] { return gelu_backward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::layer_norm_forward>(const KernelCall& call,
                                                         const BindTarget& to) {
  return bind_by_type(call, "residual", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_layer_norm_forward<T>(call));
    return [k, stream = to.stream] { return layer_norm_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::layer_norm_backward>(const KernelCall& call,
                                                          const BindTarget& to) {
  return bind_by_type(call, "input", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_layer_norm_backward<T>(call));
    return [k, outlier = to.outlier, stream = to.stream] {
      return layer_norm_backward(k, stream, outlier);
    };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::qk_row_norm_rope_forward>(const KernelCall& call,
                                                               const BindTarget& to) {
  return bind_by_type(call, "query_key", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_qk_row_norm_rope_forward<T>(call));
    return [k, stream = to.stream] { return qk_row_norm_rope_forward(k, stream); };
  });
}

template <>
Result<Launch> bind_kind<KernelKind::qk_row_norm_rope_backward>(const KernelCall& call,
                                                                const BindTarget& to) {
  return bind_by_type(call, "query_key", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_qk_row_norm_rope_backward<T>(call));
    return [k, outlier = to.outlier, stream = to.stream] {
      return qk_row_norm_rope_backward(k, stream, outlier);
    };
  });
}

}  // namespace mfsdp::cuda
