#include <vector>

#include "core/runtime/calls/take_norm.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/layer_norm.hpp"
#include "verify/cpu/kernels/norm.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp::kernels {
namespace {

/// `row`: room for one row of sums.
template <class T, class G>
Result<void> sum_columns(const Kernel& kernel, const ColumnSums<T, G>& k, Real<T>* row) {
  if (k.pieces.grid) {
    GridSums<Real<T>> sums(*k.pieces.grid);
    exact_column_sums(k, row, sums);
    return sums.result(kernel, "weight_grad");
  }
  column_sums(k.rows, k.cols, k.in, row, k.adds, k.out);
  return {};
}

}  // namespace

template <>
Result<void> run_kind<KernelKind::rms_norm_forward>(const KernelCall& call,
                                                    const KernelSettings& /*settings*/) {
  return with_type_of(call, "residual", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_rms_norm_forward<T>(call));
    rms_norm_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::rms_norm_backward>(const KernelCall& call,
                                                     const KernelSettings& /*settings*/) {
  return with_type_of(call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_rms_norm_backward<T>(call));
    if (k.pieces.grid) {
      GridSums<Real<T>> sums(*k.pieces.grid);
      exact_rms_norm_backward(k, sums);
      return sums.result(*call.kernel, "partials");
    }
    rms_norm_backward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::layer_norm_forward>(const KernelCall& call,
                                                      const KernelSettings& /*settings*/) {
  return with_type_of(call, "residual", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_layer_norm_forward<T>(call));
    layer_norm_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::layer_norm_backward>(const KernelCall& call,
                                                       const KernelSettings& /*settings*/) {
  return with_type_of(call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_layer_norm_backward<T>(call));
    if (k.pieces.grid) {
      GridSums<Real<T>> sums(*k.pieces.grid);
      exact_layer_norm_backward(k, sums);
      return sums.result(*call.kernel, "partials");
    }
    layer_norm_backward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::norm_weight_grad>(const KernelCall& call,
                                                    const KernelSettings& /*settings*/) {
  return with_type_of(call, "weight_grad", [&]<class G>(TypeTag<G>) -> Result<void> {
    MFSDP_LET(k, take_norm_weight_grad<G>(call));
    std::vector<Real<G>> row(static_cast<std::size_t>(k.cols));
    return sum_columns(*call.kernel, k, row.data());
  });
}

template <>
Result<void> run_kind<KernelKind::bias_grad>(const KernelCall& call,
                                             const KernelSettings& /*settings*/) {
  return with_type_of(call, "d_output", [&]<class T>(TypeTag<T>) {
    return with_type_beside<T>(AllElementTypes{}, call, "weight_grad",
                               [&]<class G>(TypeTag<G>) -> Result<void> {
                                 MFSDP_LET(k, (take_bias_grad<T, G>(call)));
                                 return sum_columns(*call.kernel, k, k.partials);
                               });
  });
}

}  // namespace mfsdp::kernels
