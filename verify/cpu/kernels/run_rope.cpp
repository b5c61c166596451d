#include "core/runtime/calls/take_rope.hpp"
#include "verify/cpu/kernels/check_positions.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/rope.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp::kernels {
namespace {

Result<void> run_rope(const KernelCall& call) {
  return with_type_of(call, rope_role(*call.kernel), [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_rope<T>(call));
    MFSDP_TRY(check_documents(*call.kernel, k.shape));
    rope(k.shape, k.heads, k.table, k.backwards);
    return {};
  });
}

}  // namespace

template <>
Result<void> run_kind<KernelKind::rope_backward>(const KernelCall& call,
                                                 const KernelSettings& /*settings*/) {
  return run_rope(call);
}

template <>
Result<void> run_kind<KernelKind::rope_forward>(const KernelCall& call,
                                                const KernelSettings& /*settings*/) {
  return run_rope(call);
}

template <>
Result<void> run_kind<KernelKind::qk_norm_rope_forward>(const KernelCall& call,
                                                        const KernelSettings& /*settings*/) {
  return with_type_of(call, "query_key", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_qk_norm_rope_forward<T>(call));
    MFSDP_TRY(check_documents(*call.kernel, k.shape));
    qk_norm_rope_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::qk_norm_rope_backward>(const KernelCall& call,
                                                         const KernelSettings& /*settings*/) {
  return with_type_of(call, "query_key", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_qk_norm_rope_backward<T>(call));
    MFSDP_TRY(check_documents(*call.kernel, k.shape));
    if (k.pieces.grid) {
      GridSums<Real<T>> sums(*k.pieces.grid);
      exact_qk_norm_rope_backward(k, sums);
      return sums.result(*call.kernel, "partials");
    }
    qk_norm_rope_backward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::qk_row_norm_rope_forward>(const KernelCall& call,
                                                            const KernelSettings& /*settings*/) {
  return with_type_of(call, "query_key", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_qk_row_norm_rope_forward<T>(call));
    MFSDP_TRY(check_documents(*call.kernel, k.shape));
    qk_row_norm_rope_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::qk_row_norm_rope_backward>(const KernelCall& call,
                                                             const KernelSettings& /*settings*/) {
  return with_type_of(call, "query_key", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_qk_row_norm_rope_backward<T>(call));
    MFSDP_TRY(check_documents(*call.kernel, k.shape));
    if (k.pieces.grid) {
      GridSums<Real<T>> sums(*k.pieces.grid);
      exact_qk_row_norm_rope_backward(k, sums);
      return sums.result(*call.kernel, "partials");
    }
    qk_row_norm_rope_backward(k);
    return {};
  });
}

}  // namespace mfsdp::kernels
