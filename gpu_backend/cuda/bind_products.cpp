// GEMMs and attention: algorithms of libraries, chosen before the first step.
#include <fmt/format.h>

#include <type_traits>

#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/gemm_call.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"

namespace mfsdp::cuda {
namespace {

/// Gradients of two different 16-bit types have a separate error.
struct GemmTypes {
  using First = CudaTypes;
  template <class T>
  using Second = CudaTypes;
};

}  // namespace

template <>
Result<Launch> bind_kind(const KernelBinding<K::gemm>& to) {
  Launch launch;
  const auto bind = [&]<class T, class C>(const kernels::Gemm<T, C>& k) -> Result<void> {
    if constexpr (sizeof(T) == 2 && sizeof(C) == 2 && !std::is_same_v<T, C>)
      return fail("kernel gemm", fmt::format("expected operands of one 16-bit type, got {} and {}",
                                             to_string(dtype_of<T>), to_string(dtype_of<C>)));
    MFSDP_LET(planner, to.binder.gemm());
    MFSDP_TRY(prepare(*planner, k, to.stream));
    launch =
        to.launch_of(k, [planner](const auto& gemm, cudaStream_t stream, ExactOutlier* outlier) {
          return run(*planner, gemm, stream, outlier);
        });
    return {};
  };
  MFSDP_TRY(with_gemm<GemmTypes>(to.call, bind));
  return launch;
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::attention_forward>& to) {
  return to.bind([&](const auto& k) -> Result<Launch> {
    MFSDP_LET(planner, to.binder.attention());
    return planner->bind(k, to.stream);
  });
}

template <>
Result<Launch> bind_kind(const KernelBinding<K::attention_backward>& to) {
  return to.bind([&](const auto& k) -> Result<Launch> {
    MFSDP_LET(planner, to.binder.attention());
    return planner->bind(k, to.stream);
  });
}

}  // namespace mfsdp::cuda
