#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "core/runtime/calls/take_sums.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/run_kind.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::kernels {
namespace {

template <class In, class Out>
Result<void> add_up(const KernelCall& call, const Accumulate<In, Out>& k) {
  return with_grid<Real<In>>(k.grid, *call.kernel, accumulate_output(call), [&](auto* sums) {
    if (sums == nullptr)
      accumulate(k.count, k.in, k.adds, k.out);
    else if constexpr (std::is_same_v<In, Real<In>>)
      sums->add(std::span(k.in, static_cast<std::size_t>(k.count)), k.adds, k.out);
  });
}

constexpr std::int64_t kBlock = 1024;  ///< elements whose sums are kept at a time

/// Microbatches are added to the sum of ranks, as they are to the result of a reduce-scatter.
template <class In, class Out>
void add_ranks(const SumRanks<In, Out>& k, GridSums<Real<In>>* grid) {
  std::array<Real<In>, kBlock> sums{};
  for (std::int64_t begin = 0; begin < k.count; begin += kBlock) {
    const std::int64_t size = std::min(kBlock, k.count - begin);
    sum_parts(k.ranks, k.count, size, k.in + begin, sums.data());
    if (grid != nullptr)
      grid->add(std::span<const Real<In>>(sums).first(static_cast<std::size_t>(size)), k.adds,
                k.out + begin);
    else
      accumulate(size, sums.data(), k.adds, k.out + begin);
  }
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
                                  return add_up(call, k);
                                });
  });
}

}  // namespace

template <>
Result<void> run_kind(const KernelRun<K::accumulate>& run) {
  return run_accumulate(run.call);
}

template <>
Result<void> run_kind(const KernelRun<K::cast>& run) {
  return run_accumulate(run.call);
}

template <>
Result<void> run_kind(const KernelRun<K::dequantise>& /*run*/) {
  return fail("kernel dequantise", "is predicted and never run: expected --base-dtype compute");
}

template <>
Result<void> run_kind(const KernelRun<K::sum_ranks>& run) {
  return run([&]<class In, class Out>(const SumRanks<In, Out>& k) {
    return with_grid<Real<In>>(k.grid, run.kernel(), "output",
                               [&](auto* sums) { add_ranks(k, sums); });
  });
}

template <>
Result<void> run_kind(const KernelRun<K::zero_padding>& run) {
  MFSDP_LET(k, take_zero_padding(run.call));
  for (const std::span<std::byte> gap : k.gaps) std::ranges::fill(gap, std::byte{0});
  return {};
}

template <>
Result<void> run_kind(const KernelRun<K::loss_finish>& run) {
  return run([](const auto& k) {
    write_report(finish_loss(k.sums, k.scale == nullptr ? 1.0 : k.scale->scale), k.report);
  });
}

template <>
Result<void> run_kind(const KernelRun<K::norm_partial>& run) {
  if (has_exact_partials(run.call, "output")) return run_exact_norm_partial(run.call);
  return with_type_of(run.call, "input", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_norm_partial<T>(run.call));
    *k.partial = static_cast<float>(
        sum_of_squares(static_cast<std::int64_t>(k.values.size()), k.values.data()));
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::norm_finish>& run) {
  MFSDP_LET(k, take_norm_finish(run.call));
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
