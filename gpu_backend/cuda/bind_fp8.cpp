// Kernels of FP8, which the CPU has.
#include <string>

#include "gpu_backend/cuda/bind_kind.hpp"

namespace mfsdp::cuda {
namespace {

tl::unexpected<Error> refuse_fp8(KernelKind kind) {
  return fail("kernel " + std::string(to_string(kind)), "GPUs have no kernels of this kind yet");
}

}  // namespace

template <>
Result<Launch> bind_kind(const KernelBinding<K::amax>& /*to*/) {
  return refuse_fp8(K::amax);
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::cast_scaled>& /*to*/) {
  return refuse_fp8(K::cast_scaled);
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::transpose>& /*to*/) {
  return refuse_fp8(K::transpose);
}
template <>
Result<Launch> bind_kind(const KernelBinding<K::gemm_fp8>& /*to*/) {
  return refuse_fp8(K::gemm_fp8);
}

}  // namespace mfsdp::cuda
