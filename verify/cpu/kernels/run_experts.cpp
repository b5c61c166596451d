#include <fmt/format.h>

#include <span>
#include <vector>

#include "verify/cpu/kernels/experts.hpp"
#include "verify/cpu/kernels/run_kind.hpp"

namespace mfsdp::kernels {
namespace {

/// Numbers by which rows are taken: an error unless all lie in [least, limit).
Result<void> check_places(const Kernel& kernel, std::string_view role,
                          std::span<const std::int32_t> places, std::int64_t limit,
                          std::int64_t least = 0) {
  for (const std::int32_t place : places)
    if (place < least || place >= limit)
      return fail(fmt::format("kernel {}: operand {}", to_string(kernel.kind), role),
                  fmt::format("expected numbers from {} to {}, got {}", least, limit - 1, place),
                  Fault::environment);
  return {};
}

std::span<const std::int32_t> numbers(const std::int32_t* data, std::int64_t count) {
  return {data, static_cast<std::size_t>(count)};
}

/// Ends of experts' rows ascend, and there are `rows` at most. Returns how many there are.
Result<std::int64_t> check_ends(const Kernel& kernel, const std::int32_t* ends,
                                std::int64_t experts, std::int64_t rows) {
  if (ends == nullptr) return rows;
  std::int64_t last = 0;
  for (const std::int32_t end : numbers(ends, experts)) {
    if (end < last || end > rows)
      return fail(fmt::format("kernel {}: operand ends", to_string(kernel.kind)),
                  fmt::format("expected numbers from {} to {}, got {}", last, rows, end),
                  Fault::environment);
    last = end;
  }
  return last;
}

/// Multiplies into the plan's workspace, or into memory of its own where that is too small.
template <class T, class C, class Run>
void with_room(Gemm<T, C> g, std::int64_t needed, std::vector<Real<T>>& own, const Run& multiply) {
  if (g.workspace.size() < static_cast<std::size_t>(needed) * sizeof(Real<T>)) {
    own.resize(static_cast<std::size_t>(needed));
    g.workspace = std::as_writable_bytes(std::span(own));
  }
  multiply(g);
}

template <KernelKind kind>
Result<void> run_grouped_product(const KernelRun<kind>& run) {
  return run([&]<class T>(const GroupedProduct<T>& p) -> Result<void> {
    MFSDP_TRY(check_ends(run.kernel(), p.ends, p.sizes.experts, p.sizes.m));
    std::vector<Real<T>> own;
    for_each_expert(p.ends, p.sizes.experts, [&](auto expert, auto begin, auto rows) {
      const Gemm<T, T> g = product_of_expert(p, expert, begin, rows);
      if (rows > 0) with_room(g, gemm_workspace(g), own, [](const Gemm<T, T>& one) { gemm(one); });
    });
    return {};
  });
}

template <class T, class G>
void weight_gradients(const GroupedWeightGradient<T, G>& p, GridSums<Real<T>>* sums) {
  std::vector<Real<T>> own;
  for_each_expert(p.ends, p.sizes.experts, [&](auto expert, auto begin, auto rows) {
    const Gemm<T, G> g = product_of_expert(p, expert, begin, rows);
    if (rows == 0) {
      if (!p.adds) std::fill_n(g.c, g.rows * g.cols, narrow<G>(0));
    } else if (sums != nullptr) {
      with_room(g, tile_workspace(g.rows, g.cols, 1), own,
                [&](const Gemm<T, G>& one) { exact_weight_gradient(one, *sums); });
    } else {
      with_room(g, gemm_workspace(g), own, [](const Gemm<T, G>& one) { gemm(one); });
    }
  });
}

}  // namespace

template <>
Result<void> run_kind(const KernelRun<K::router_forward>& run) {
  return run([](const auto& k) { router_forward(k); });
}
template <>
Result<void> run_kind(const KernelRun<K::router_backward>& run) {
  return run([&](const auto& k) -> Result<void> {
    const RoutingSizes& s = k.sizes;
    MFSDP_TRY(
        check_places(run.kernel(), "indices", numbers(k.indices, s.tokens * s.top_k), s.experts));
    router_backward(k);
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::expert_order>& run) {
  return run([&](const auto& k) -> Result<void> {
    const RoutingSizes& s = k.sizes;
    MFSDP_TRY(
        check_places(run.kernel(), "indices", numbers(k.indices, s.tokens * s.top_k), s.experts));
    expert_order(k);
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::peer_order>& run) {
  return run([&](const auto& k) -> Result<void> {
    const RoutingSizes& s = k.sizes;
    const std::int64_t rows = s.tokens * s.top_k;
    MFSDP_LET(there, check_ends(run.kernel(), k.ends, s.experts, rows));
    if (there != rows)
      return fail("kernel peer_order: operand ends",
                  fmt::format("expected the {} rows of all tokens, got {}", rows, there),
                  Fault::environment);
    MFSDP_TRY(check_places(run.kernel(), "row_order", numbers(k.row_order, rows), rows));
    for (std::int64_t peer = 0, begin = 0; peer < k.peers; ++peer) {
      const std::int64_t end = k.ends[(peer + 1) * (s.experts / k.peers) - 1];
      if (end - begin > k.m / k.peers)  // which the flag was to hold: no fault of the machine
        return fail("--capacity-factor",
                    fmt::format("expected room for {} rows from one rank of ep to another, got {}",
                                end - begin, k.m / k.peers));
      begin = end;
    }
    peer_order(k);
    return {};
  });
}
template <>
Result<void> run_kind(const KernelRun<K::arrival_order>& run) {
  return run([&](const auto& k) -> Result<void> {
    for (std::int64_t p = 0; p < k.peers; ++p) {
      std::int64_t rows = 0;
      for (std::int64_t e = 0; e < k.experts; ++e) {
        const std::int32_t count = k.counts[p * k.experts + e];
        if (count < 0)
          return fail("kernel arrival_order: operand counts",
                      fmt::format("expected numbers of rows, got {}", count), Fault::environment);
        rows += count;
      }
      if (rows > k.m / k.peers)
        return fail("kernel arrival_order: operand counts",
                    fmt::format("expected at most {} rows from rank {} of ep, got {}",
                                k.m / k.peers, p, rows),
                    Fault::environment);
    }
    arrival_order(k);
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::permute_rows>& run) {
  return run([&](const auto& k) -> Result<void> {
    // -1 where there is no row.
    const bool may_lack = run.kernel().find_attribute("m") != nullptr;
    MFSDP_TRY(check_places(run.kernel(), "order", numbers(k.order, k.rows), k.tokens * k.top_k,
                           may_lack ? -1 : 0));
    permute_rows(k);
    return {};
  });
}
template <>
Result<void> run_kind(const KernelRun<K::combine_rows>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_TRY(check_places(run.kernel(), "places", numbers(k.places, k.tokens * k.top_k), k.rows));
    combine_rows(k);
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::grouped_product>& run) {
  return run_grouped_product(run);
}
template <>
Result<void> run_kind(const KernelRun<K::grouped_input_gradient>& run) {
  return run_grouped_product(run);
}
template <>
Result<void> run_kind(const KernelRun<K::grouped_weight_gradient>& run) {
  return run([&]<class T, class G>(const GroupedWeightGradient<T, G>& p) -> Result<void> {
    MFSDP_TRY(check_ends(run.kernel(), p.ends, p.sizes.experts, p.sizes.m));
    return with_grid<Real<T>>(p.pieces.grid, run.kernel(), "weight_grad",
                              [&](auto* sums) { weight_gradients(p, sums); });
  });
}

template <>
Result<void> run_kind(const KernelRun<K::sigmoid_forward>& run) {
  return run([](const auto& k) { sigmoid_forward(k); });
}
template <>
Result<void> run_kind(const KernelRun<K::sigmoid_backward>& run) {
  return run([](const auto& k) { sigmoid_backward(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::expert_bias_forward>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_TRY(check_ends(run.kernel(), k.ends, k.experts, k.rows));
    expert_bias_forward(k);
    return {};
  });
}
template <>
Result<void> run_kind(const KernelRun<K::expert_bias_dots>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_TRY(check_ends(run.kernel(), k.ends, k.experts, k.rows));
    expert_bias_dots(k);
    return {};
  });
}
template <>
Result<void> run_kind(const KernelRun<K::expert_bias_gradient>& run) {
  return run([&]<class T, class G>(const ExpertBiasGradient<T, G>& k) -> Result<void> {
    MFSDP_TRY(check_ends(run.kernel(), k.ends, k.experts, k.rows));
    return with_grid<Real<T>>(k.pieces.grid, run.kernel(), "weight_grad",
                              [&](auto* sums) { expert_bias_gradient(k, sums); });
  });
}

template <>
Result<void> run_kind(const KernelRun<K::weighted_swiglu_forward>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_LET(rows, check_ends(run.kernel(), k.ends, k.experts, k.rows));
    weighted_swiglu_forward(k, rows);
    return {};
  });
}
template <>
Result<void> run_kind(const KernelRun<K::weighted_swiglu_backward>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_LET(rows, check_ends(run.kernel(), k.ends, k.experts, k.rows));
    weighted_swiglu_backward(k, rows);
    return {};
  });
}

}  // namespace mfsdp::kernels
