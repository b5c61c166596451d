// Measurements that no GPU can have made: of another GPU, in other units, or of something else.
#include <fmt/format.h>

#include <algorithm>

#include "sim/calibrate/draft.hpp"
#include "sim/cost/nccl.hpp"

namespace mfsdp {
namespace {

constexpr double kFlopsPerNanoOfTera = 1e3;

/// What to look at where a row is above a limit.
std::string wrong_row(const Gpu& gpu) {
  return fmt::format("; expected times of {} (--gpu), in the units of the columns", gpu.name);
}

Result<void> check_rate_of_row(const Gpu& gpu, const std::string& place, const std::string& what,
                               double flops_per_ns) {
  const double teraflops = flops_per_ns / kFlopsPerNanoOfTera;
  if (teraflops <= gpu.bf16) return {};
  return fail(place, fmt::format("{} runs at {:.4g} TFLOP/s, above the peak of {}, {:g} TFLOP/s{}",
                                 what, teraflops, gpu.name, gpu.bf16, wrong_row(gpu)));
}

Result<void> check_products(const Measurements& data, const Gpu& gpu) {
  for (std::size_t i = 0; i < data.gemm.size(); ++i) {
    const GemmRow& row = data.gemm[i];
    const std::string what = fmt::format("a GEMM of {:g} x {:g} x {:g}", row.m, row.n, row.k);
    MFSDP_TRY(check_rate_of_row(gpu, data.gemm_places[i], what, row.flops_per_ns));
  }
  return {};
}

/// Causal: 2 B S S heads head_dim FLOPs forward, 2.5 times that backward.
Result<void> check_attention_rates(const Measurements& data, const Gpu& gpu) {
  for (std::size_t i = 0; i < data.attention.size(); ++i) {
    const AttentionRow& row = data.attention[i];
    const double flops =
        (row.backward ? 5.0 : 2.0) * row.batch * row.seq * row.seq * row.heads * row.head_dim;
    const std::string what = fmt::format("attention {} over {:g} tokens",
                                         row.backward ? "backward" : "forward", row.seq);
    MFSDP_TRY(check_rate_of_row(gpu, data.attention_places[i], what, flops / row.ns));
  }
  return {};
}

/// The most bus bandwidth of a collective on so many GPUs: what arrives at a GPU by its link, and
/// beside that by its NICs where there are several hosts. A switch that reduces halves what an
/// all-reduce sends.
BytesPerNano most_bus_bandwidth(const CollectiveSample& sample, const Gpu& gpu) {
  BytesPerNano most = gpu.link_bandwidth;
  if (gpu.per_peer_bandwidth)
    most = std::min(most, static_cast<double>(sample.ranks - 1) * *gpu.per_peer_bandwidth);
  if (sample.nodes > 1)
    most = gpu.link_bandwidth + gpu.nic_bandwidth * static_cast<double>(gpu.nics_per_node) /
                                    static_cast<double>(gpu.gpus_per_node);
  return sample.kind == CollectiveKind::all_reduce ? 2 * most : most;
}

Result<void> check_collectives(const Measurements& data, const Gpu& gpu) {
  for (const CollectiveSample& sample : data.collectives) {
    const double bus = wire_bytes(sample.kind, static_cast<double>(sample.bytes.value),
                                  static_cast<double>(sample.ranks)) /
                       sample.ns;
    const BytesPerNano most = most_bus_bandwidth(sample, gpu);
    if (bus <= most) continue;
    return fail(
        sample.place,
        fmt::format("{} on {} GPUs has a bus bandwidth of {:.4g} GB/s, above the {:g} GB/s "
                    "that the link of {} can carry{}",
                    to_string(sample.kind), sample.ranks, bus, most, gpu.name, wrong_row(gpu)));
  }
  return {};
}

}  // namespace

Result<void> check_possible(const Draft& draft) {
  MFSDP_TRY(check_products(draft.data, draft.base));
  MFSDP_TRY(check_attention_rates(draft.data, draft.base));
  return check_collectives(draft.data, draft.base);
}

}  // namespace mfsdp
