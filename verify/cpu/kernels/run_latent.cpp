#include "verify/cpu/kernels/check_positions.hpp"
#include "verify/cpu/kernels/latent.hpp"
#include "verify/cpu/kernels/run_kind.hpp"

namespace mfsdp::kernels {

template <>
Result<void> run_kind(const KernelRun<K::latent_heads_forward>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_TRY(check_documents(run.kernel(), k.shape));
    latent_heads_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::latent_heads_backward>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_TRY(check_documents(run.kernel(), k.shape));
    latent_heads_backward(k);
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::latent_norm_forward>& run) {
  return run([](const auto& k) { latent_norm_forward(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::latent_norm_backward>& run) {
  return run([&]<class T>(const LatentNormBackward<T>& k) {
    return with_grid<Real<T>>(k.pieces.grid, run.kernel(), "partials",
                              [&](auto* sums) { latent_norm_backward(k, sums); });
  });
}

}  // namespace mfsdp::kernels
