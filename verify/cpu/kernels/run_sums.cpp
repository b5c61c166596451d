#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "core/runtime/calls/take_sums.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::kernels {
namespace {

template <class In, class Out>
Result<void> run(const KernelCall& call, const Accumulate<In, Out>& k) {
  if (!k.grid) {
    accumulate(k.count, k.in, k.adds, k.out);
    return {};
  }
  GridSums<Real<In>> sums(*k.grid);
  if constexpr (std::is_same_v<In, Real<In>>)
    sums.add(std::span(k.in, static_cast<std::size_t>(k.count)), k.adds, k.out);
  return sums.result(*call.kernel, accumulate_output(call));
}

constexpr std::int64_t kBlock = 1024;  ///< elements whose sums are kept at a time

/// Microbatches are added to the sum of ranks, as they are to what a reduce-scatter brings.
template <class In, class Out>
Result<void> run(const KernelCall& call, const SumRanks<In, Out>& k) {
  std::array<Real<In>, kBlock> sums{};
  std::optional<GridSums<Real<In>>> grid;
  if (k.grid) grid.emplace(*k.grid);
  for (std::int64_t begin = 0; begin < k.count; begin += kBlock) {
    const std::int64_t size = std::min(kBlock, k.count - begin);
    sum_parts(k.ranks, k.count, size, k.in + begin, sums.data());
    if (grid)
      grid->add(std::span<const Real<In>>(sums).first(static_cast<std::size_t>(size)), k.adds,
                k.out + begin);
    else
      accumulate(size, sums.data(), k.adds, k.out + begin);
  }
  return grid ? grid->result(*call.kernel, "output") : Result<void>{};
}

Result<void> run_exact_norm_partial(const KernelCall& call) {
  MFSDP_LET(k, take_exact_norm_partial(call));
  std::optional<float> outlier;
  *k.partial = exact_sum_of_squares(k.values, k.exponent, outlier);
  if (!outlier) return {};
  return fail("kernel norm_partial: operand input",
              fmt::format("--exact-sums expects multiples of 2^{} within 24 bits, got {}",
                          k.exponent, *outlier),
              Fault::environment);
}

Result<void> run_accumulate(const KernelCall& call) {
  return with_type_of(call, "input", [&]<class In>(TypeTag<In>) {
    return with_type_beside<In>(AllElementTypes{}, call, accumulate_output(call),
                                [&]<class Out>(TypeTag<Out>) -> Result<void> {
                                  MFSDP_LET(k, (take_accumulate<In, Out>(call)));
                                  return run(call, k);
                                });
  });
}

}  // namespace

template <>
Result<void> run_kind<KernelKind::accumulate>(const KernelCall& call,
                                              const KernelSettings& /*settings*/) {
  return run_accumulate(call);
}

template <>
Result<void> run_kind<KernelKind::cast>(const KernelCall& call,
                                        const KernelSettings& /*settings*/) {
  return run_accumulate(call);
}

template <>
Result<void> run_kind<KernelKind::sum_ranks>(const KernelCall& call,
                                             const KernelSettings& /*settings*/) {
  return with_type_of(call, "input", [&]<class In>(TypeTag<In>) {
    return with_type_beside<In>(AllElementTypes{}, call, "output",
                                [&]<class Out>(TypeTag<Out>) -> Result<void> {
                                  MFSDP_LET(k, (take_sum_ranks<In, Out>(call)));
                                  return run(call, k);
                                });
  });
}

template <>
Result<void> run_kind<KernelKind::zero_padding>(const KernelCall& call,
                                                const KernelSettings& /*settings*/) {
  MFSDP_LET(k, take_zero_padding(call));
  for (const std::span<std::byte> gap : k.gaps) std::ranges::fill(gap, std::byte{0});
  return {};
}

template <>
Result<void> run_kind<KernelKind::loss_finish>(const KernelCall& call,
                                               const KernelSettings& /*settings*/) {
  return with_type_of(call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_loss_finish<T>(call));
    write_report(finish_loss(k.sums, k.scale == nullptr ? 1.0 : k.scale->scale), k.report);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::norm_partial>(const KernelCall& call,
                                                const KernelSettings& /*settings*/) {
  if (has_exact_partials(call, "output")) return run_exact_norm_partial(call);
  return with_type_of(call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_norm_partial<T>(call));
    *k.partial = static_cast<float>(
        sum_of_squares(static_cast<std::int64_t>(k.values.size()), k.values.data()));
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::norm_finish>(const KernelCall& call,
                                               const KernelSettings& /*settings*/) {
  MFSDP_LET(k, take_norm_finish(call));
  const double inverse_tokens = read_report<LossReport>(k.loss).inverse_tokens;
  NormReport norm = k.exact_partials.empty()
                        ? finish_norm(k.partials, inverse_tokens, k.limit)
                        : finish_norm(k.exact_partials, k.exponent, inverse_tokens, k.limit);
  if (k.scale != nullptr) {
    norm.loss_scale = k.scale->scale;
    *k.scale = next_loss_scale(*k.scale, norm.non_finite != 0, k.scale_window);
  }
  write_report(norm, k.report);
  return {};
}

}  // namespace mfsdp::kernels
