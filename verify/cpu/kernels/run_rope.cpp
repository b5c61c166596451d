#include "verify/cpu/kernels/check_positions.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/rope.hpp"
#include "verify/cpu/kernels/run_kind.hpp"

namespace mfsdp::kernels {
namespace {

template <KernelKind kind>
Result<void> run_rope(const KernelRun<kind>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_TRY(check_documents(run.kernel(), k.shape));
    rope(k.shape, k.heads, k.table, k.backwards);
    return {};
  });
}

}  // namespace

template <>
Result<void> run_kind(const KernelRun<K::rope_backward>& run) {
  return run_rope(run);
}

template <>
Result<void> run_kind(const KernelRun<K::rope_forward>& run) {
  return run_rope(run);
}

template <>
Result<void> run_kind(const KernelRun<K::qk_norm_rope_forward>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_TRY(check_documents(run.kernel(), k.shape));
    qk_norm_rope_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::qk_norm_rope_backward>& run) {
  return run([&]<class T>(const QkNormRopeBackward<T, float>& k) -> Result<void> {
    MFSDP_TRY(check_documents(run.kernel(), k.shape));
    return with_grid<Real<T>>(k.pieces.grid, run.kernel(), "partials", [&](auto* sums) {
      sums != nullptr ? exact_qk_norm_rope_backward(k, *sums) : qk_norm_rope_backward(k);
    });
  });
}

template <>
Result<void> run_kind(const KernelRun<K::qk_row_norm_rope_forward>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_TRY(check_documents(run.kernel(), k.shape));
    qk_row_norm_rope_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::qk_row_norm_rope_backward>& run) {
  return run([&]<class T>(const QkRowNormRopeBackward<T, float>& k) -> Result<void> {
    MFSDP_TRY(check_documents(run.kernel(), k.shape));
    return with_grid<Real<T>>(k.pieces.grid, run.kernel(), "partials", [&](auto* sums) {
      sums != nullptr ? exact_qk_row_norm_rope_backward(k, *sums) : qk_row_norm_rope_backward(k);
    });
  });
}

}  // namespace mfsdp::kernels
