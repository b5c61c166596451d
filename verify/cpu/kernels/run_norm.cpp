#include <vector>

#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/fp8.hpp"
#include "verify/cpu/kernels/layer_norm.hpp"
#include "verify/cpu/kernels/norm.hpp"
#include "verify/cpu/kernels/run_kind.hpp"

namespace mfsdp::kernels {
namespace {

/// `row`: room for one row of sums.
template <class T, class G>
Result<void> sum_columns(const Kernel& kernel, const ColumnSums<T, G>& k, Real<T>* row) {
  return with_grid<Real<T>>(k.pieces.grid, kernel, "weight_grad", [&](auto* sums) {
    if (sums != nullptr)
      exact_column_sums(k, row, *sums);
    else
      column_sums(k.rows, k.cols, k.in, row, k.adds, k.out);
  });
}

}  // namespace

template <>
Result<void> run_kind(const KernelRun<K::rms_norm_forward>& run) {
  return run([](const auto& k) {
    rms_norm_forward(k);
    if (k.amax != nullptr) *k.amax = largest_magnitude(k.normed, k.rows * k.cols);
  });
}

template <>
Result<void> run_kind(const KernelRun<K::rms_norm_backward>& run) {
  return run([&]<class T>(const RmsNormBackward<T>& k) {
    return with_grid<Real<T>>(k.pieces.grid, run.kernel(), "partials", [&](auto* sums) {
      sums != nullptr ? exact_rms_norm_backward(k, *sums) : rms_norm_backward(k);
      if (k.amax != nullptr) *k.amax = largest_magnitude(k.d_residual, k.rows * k.cols);
    });
  });
}

template <>
Result<void> run_kind(const KernelRun<K::layer_norm_forward>& run) {
  return run([](const auto& k) { layer_norm_forward(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::layer_norm_backward>& run) {
  return run([&]<class T>(const LayerNormBackward<T>& k) {
    return with_grid<Real<T>>(k.pieces.grid, run.kernel(), "partials", [&](auto* sums) {
      sums != nullptr ? exact_layer_norm_backward(k, *sums) : layer_norm_backward(k);
    });
  });
}

template <>
Result<void> run_kind(const KernelRun<K::norm_weight_grad>& run) {
  return run([&]<class R, class G>(const ColumnSums<R, G>& k) {
    std::vector<R> row(static_cast<std::size_t>(k.cols));
    return sum_columns(run.kernel(), k, row.data());
  });
}

template <>
Result<void> run_kind(const KernelRun<K::add_bias>& run) {
  return run([]<class T>(const AddBias<T>& k) {
    for (std::int64_t i = 0; i < k.rows * k.cols; ++i)
      k.output[i] = narrow<T>(widen(k.output[i]) + widen(k.bias[i % k.cols]));
  });
}

template <>
Result<void> run_kind(const KernelRun<K::bias_grad>& run) {
  return run([&](const auto& k) { return sum_columns(run.kernel(), k, k.partials); });
}

}  // namespace mfsdp::kernels
