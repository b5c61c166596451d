#include <optional>

#include "core/runtime/calls/take_attention.hpp"
#include "core/runtime/calls/take_norm.hpp"
#include "verify/cpu/kernels/check_positions.hpp"
#include "verify/cpu/kernels/latent.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp::kernels {

template <>
Result<void> run_kind<KernelKind::latent_heads_forward>(const KernelCall& call,
                                                        const KernelSettings& /*settings*/) {
  return with_type_of(call, "query", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_latent_heads_forward<T>(call));
    MFSDP_TRY(check_positions(*call.kernel, k.shape.positions, k.shape.rows, k.shape.seq_len));
    latent_heads_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::latent_heads_backward>(const KernelCall& call,
                                                         const KernelSettings& /*settings*/) {
  return with_type_of(call, "d_output", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_latent_heads_backward<T>(call));
    MFSDP_TRY(check_positions(*call.kernel, k.shape.positions, k.shape.rows, k.shape.seq_len));
    latent_heads_backward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::latent_norm_forward>(const KernelCall& call,
                                                       const KernelSettings& /*settings*/) {
  return with_type_of(call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_latent_norm_forward<T>(call));
    latent_norm_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::latent_norm_backward>(const KernelCall& call,
                                                        const KernelSettings& /*settings*/) {
  return with_type_of(call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_latent_norm_backward<T>(call));
    std::optional<GridSums<Real<T>>> sums;
    if (k.pieces.grid) sums.emplace(*k.pieces.grid);
    latent_norm_backward(k, sums ? &*sums : nullptr);
    return sums ? sums->result(*call.kernel, "partials") : Result<void>{};
  });
}

}  // namespace mfsdp::kernels
