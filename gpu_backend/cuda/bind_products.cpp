// Products and attention: libraries' algorithms, chosen before the first step.
#include <fmt/format.h>

#include <type_traits>

#include "core/runtime/calls/take_attention.hpp"
#include "core/runtime/calls/take_gemm.hpp"
#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/gemm_call.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"

namespace mfsdp::cuda {

template <>
Result<Launch> bind_kind<KernelKind::gemm>(const KernelCall& call, const BindTarget& to) {
  Launch launch;
  const auto bind = [&]<class T, class C>(const kernels::Gemm<T, C>& k) -> Result<void> {
    if constexpr (sizeof(T) == 2 && sizeof(C) == 2 && !std::is_same_v<T, C>)
      return fail("kernel gemm", fmt::format("expected operands of one 16-bit type, got {} and {}",
                                             to_string(dtype_of<T>), to_string(dtype_of<C>)));
    MFSDP_LET(planner, to.binder.gemm());
    MFSDP_TRY(prepare(*planner, k, to.stream));
    launch = [planner, k, outlier = to.outlier, stream = to.stream] {
      return run(*planner, k, stream, outlier);
    };
    return {};
  };
  MFSDP_TRY(kernels::with_gemm(CudaTypes{}, call, bind));
  return launch;
}

template <>
Result<Launch> bind_kind<KernelKind::attention_forward>(const KernelCall& call,
                                                        const BindTarget& to) {
  return bind_by_type(call, "query", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_attention_forward<T>(call));
    MFSDP_LET(planner, to.binder.attention());
    return planner->bind(k, to.stream);
  });
}

template <>
Result<Launch> bind_kind<KernelKind::attention_backward>(const KernelCall& call,
                                                         const BindTarget& to) {
  return bind_by_type(call, "query", [&]<class T>(TypeTag<T>) -> Result<Launch> {
    MFSDP_LET(k, kernels::take_attention_backward<T>(call));
    MFSDP_LET(planner, to.binder.attention());
    return planner->bind(k, to.stream);
  });
}

}  // namespace mfsdp::cuda
