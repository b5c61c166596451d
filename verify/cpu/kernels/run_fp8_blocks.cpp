#include "verify/cpu/kernels/fp8_blocks.hpp"
#include "verify/cpu/kernels/run_kind.hpp"

namespace mfsdp::kernels {

template <>
Result<void> run_kind(const KernelRun<K::cast_blocks>& run) {
  return run([](const auto& k) { cast_blocks(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::gemm_blocks>& run) {
  return with_block_gemm(run.call, []<class C>(const BlockGemm<C>& k) { block_gemm(k); });
}

}  // namespace mfsdp::kernels
