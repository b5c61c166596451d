#include "verify/cpu/kernels/fp8.hpp"
#include "verify/cpu/kernels/run_kind.hpp"
#include "verify/cpu/kernels/swiglu.hpp"

namespace mfsdp::kernels {

template <>
Result<void> run_kind(const KernelRun<K::amax>& run) {
  return run([](const auto& k) {
    const float most = largest_magnitude(k.input, k.rows * k.cols);
    *k.amax = k.adds ? larger_magnitude(*k.amax, most) : most;
  });
}

template <>
Result<void> run_kind(const KernelRun<K::amax_history>& run) {
  return run([](const AmaxHistory& k) { keep_amaxes(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::cast_scaled>& run) {
  return run([](const auto& k) { cast_scaled(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::swiglu_forward_cast>& run) {
  return run([]<class T>(const SwigluForwardCast<T>& k) {
    std::vector<T> product(static_cast<std::size_t>(k.rows * k.cols));
    gated_forward<Silu>(k.rows, k.cols, k.gate_up, product.data());
    cast_scaled(CastScaled<T>{.rows = k.rows,
                              .cols = k.cols,
                              .input = product.data(),
                              .amax = k.amax,
                              .output = k.output,
                              .output_t = k.output_t,
                              .output_scale = k.output_scale});
  });
}

template <>
Result<void> run_kind(const KernelRun<K::transpose>& run) {
  return run([](const Transpose& k) {
    for (std::int64_t row = 0; row < k.rows; ++row)
      for (std::int64_t col = 0; col < k.cols; ++col)
        k.output.data[col * k.rows + row] = k.input.data[row * k.cols + col];
  });
}

template <>
Result<void> run_kind(const KernelRun<K::gemm_fp8>& run) {
  return with_fp8_gemm(run.call, []<class C>(const Fp8Gemm<C>& k) { fp8_gemm(k); });
}

}  // namespace mfsdp::kernels
