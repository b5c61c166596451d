// Kernels of FP8: casts, and GEMMs through cuBLASLt.
#include <type_traits>

#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/gemm_fp8.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"
#include "gpu_backend/cuda/kernels/fp8.hpp"

namespace mfsdp::cuda {

template <>
Result<Launch> bind_kind(const KernelBinding<K::amax>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return amax(k, stream); });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::amax_history>& to) {
  return to.launch([](const auto& k, cudaStream_t stream) { return keep_amaxes(k, stream); });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::cast_scaled>& to) {
  return to.bind([&](const auto& k) -> Result<Launch> {
    if (k.output_t.data != nullptr)
      MFSDP_TRY(check_transposes("cast_scaled", k.rows, k.cols,
                                 {k.input, k.output.data, k.output_t.data}));
    return to.launch_of(
        k, [](const auto& call, cudaStream_t stream) { return cast_scaled(call, stream); });
  });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::swiglu_forward_cast>& to) {
  return to.bind([&]<class T>(const kernels::SwigluForwardCast<T>& k) -> Result<Launch> {
    if constexpr (std::is_same_v<T, Bf16>) {
      const auto with = [&]<class F>(F) {
        const CastTargets<F> targets{.amax = k.amax,
                                     .output = reinterpret_cast<F*>(k.output.data),
                                     .output_t = reinterpret_cast<F*>(k.output_t.data),
                                     .output_scale = k.output_scale};
        return to.launch_of(k, [targets](const auto& call, cudaStream_t stream) {
          return swiglu_forward_cast(call.rows, call.cols, call.gate_up, targets, stream);
        });
      };
      return k.dtype() == DType::fp8_e4m3 ? with(Fp8E4m3{}) : with(Fp8E5m2{});
    } else {
      return fail("kernel swiglu_forward_cast", "expected bf16");
    }
  });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::transpose>& to) {
  return to.bind([&](const auto& k) -> Result<Launch> {
    MFSDP_TRY(check_transposes("transpose", k.rows, k.cols, {k.input.data, k.output.data}));
    return to.launch_of(
        k, [](const auto& call, cudaStream_t stream) { return transpose(call, stream); });
  });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::gemm_fp8>& to) {
  Launch launch;
  const auto bind = [&]<class C>(const kernels::Fp8Gemm<C>& k) -> Result<void> {
    MFSDP_LET(planner, to.binder.gemm());
    const GemmShape shape = fp8_shape_of(k);
    const GemmMemory memory = fp8_memory_of(k);
    MFSDP_TRY(planner->prepare(shape, memory, to.stream));
    launch = [planner, shape, memory, stream = to.stream] {
      return planner->run(shape, memory, stream);
    };
    return {};
  };
  MFSDP_TRY(with_fp8_gemm<CudaCallTypes>(to.call, bind));
  return launch;
}

}  // namespace mfsdp::cuda
