#include "verify/cpu/kernels/newton_schulz.hpp"
#include "verify/cpu/kernels/run_kind.hpp"

namespace mfsdp::kernels {

template <>
Result<void> run_kind(const KernelRun<K::newton_schulz>& run) {
  return run([](const auto& k) { orthogonalise(k.rows, k.cols, k.matrix); });
}

}  // namespace mfsdp::kernels
