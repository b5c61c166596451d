// Rejects impossible measurements: of another GPU, in other units, or of something else.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "sim/calibrate/calibration_state.hpp"
#include "sim/calibrate/fit.hpp"
#include "sim/cost/nccl.hpp"

namespace mfsdp {
namespace {

/// Advice for a row, or a trace, that exceeds a limit.
std::string wrong_row(const Gpu& gpu) {
  return fmt::format("; expected times of {} (--gpu), in the units of the columns", gpu.name);
}
std::string wrong_trace(const Gpu& gpu) {
  return fmt::format("; expected a trace of {} (--gpu)", gpu.name);
}

Result<void> check_rate(const Gpu& gpu, const std::string& place, const std::string& what,
                        double flops_per_ns, const std::string& wrong) {
  const double teraflops = flops_per_ns / kFlopsPerNanoOfTera;
  if (teraflops <= gpu.bf16) return {};
  return fail(place, fmt::format("{} runs at {:.4g} TFLOP/s, above the peak of {}, {:g} TFLOP/s{}",
                                 what, teraflops, gpu.name, gpu.bf16, wrong));
}

Result<void> check_products(const Measurements& data, const Gpu& gpu) {
  for (std::size_t i = 0; i < data.gemm.size(); ++i) {
    const GemmRow& row = data.gemm[i];
    const std::string what = fmt::format("a GEMM of {:g} x {:g} x {:g}", row.m, row.n, row.k);
    MFSDP_TRY(check_rate(gpu, data.gemm_places[i], what, row.flops_per_ns, wrong_row(gpu)));
  }
  return {};
}

std::string attention_words(bool backward, double seq) {
  return fmt::format("attention {} over {:g} tokens", backward ? "backward" : "forward", seq);
}

Result<void> check_attention_rates(const Measurements& data, const Gpu& gpu) {
  for (std::size_t i = 0; i < data.attention.size(); ++i) {
    const AttentionRow& row = data.attention[i];
    const double flops = attention_flops(row.backward, row.batch, row.seq, row.heads, row.head_dim);
    MFSDP_TRY(check_rate(gpu, data.attention_places[i], attention_words(row.backward, row.seq),
                         flops / row.ns, wrong_row(gpu)));
  }
  return {};
}

/// Maximum bus bandwidth of a collective on these GPUs: a GPU receives through its link and, with
/// several hosts, also through its NICs. A switch that reduces halves the bytes that an all-reduce
/// sends.
BytesPerNano most_bus_bandwidth(const CollectiveSample& sample, const Gpu& gpu) {
  BytesPerNano most = gpu.link_bandwidth;
  if (gpu.per_peer_bandwidth)
    most = std::min(most, static_cast<double>(sample.ranks - 1) * *gpu.per_peer_bandwidth);
  if (sample.nodes > 1)
    most = gpu.link_bandwidth + gpu.nic_bandwidth * static_cast<double>(gpu.nics_per_node) /
                                    static_cast<double>(gpu.gpus_per_node);
  return sample.kind == CollectiveKind::all_reduce ? 2 * most : most;
}

Result<void> check_collective(const CollectiveSample& sample, const Gpu& gpu,
                              const std::string& wrong) {
  const double bus = wire_bytes(sample.kind, static_cast<double>(sample.bytes.value),
                                static_cast<double>(sample.ranks)) /
                     sample.ns;
  const BytesPerNano most = most_bus_bandwidth(sample, gpu);
  if (bus <= most) return {};
  return fail(sample.place,
              fmt::format("{} on {} GPUs has a bus bandwidth of {:.4g} GB/s, above the {:g} GB/s "
                          "that the link of {} can carry{}",
                          to_string(sample.kind), sample.ranks, bus, most, gpu.name, wrong));
}

Result<void> check_collectives(const Measurements& data, const Gpu& gpu) {
  for (const CollectiveSample& sample : data.collectives)
    MFSDP_TRY(check_collective(sample, gpu, wrong_row(gpu)));
  return {};
}

/// Collectives between domains are not checked: a calibration ignores those of traces.
Result<void> check_trace(const TraceRun& trace, const CalibrationState& state) {
  const Gpu& gpu = state.base;
  const std::string place = printable(trace.where);
  for (const TracedGemm& row : trace.gemms) {
    const double flops =
        2.0 * static_cast<double>(row.m) * static_cast<double>(row.n) * static_cast<double>(row.k);
    MFSDP_TRY(check_rate(gpu, place, fmt::format("a GEMM of {} x {} x {}", row.m, row.n, row.k),
                         flops / row.ns, wrong_trace(gpu)));
  }
  for (const TracedAttention& row : trace.attentions) {
    const auto seq = static_cast<double>(row.seq);
    const double flops =
        attention_flops(row.backward, static_cast<double>(row.batch), seq,
                        static_cast<double>(row.heads), static_cast<double>(row.head_dim));
    MFSDP_TRY(check_rate(gpu, place, attention_words(row.backward, seq), flops / row.ns,
                         wrong_trace(gpu)));
  }
  for (const TracedCollective& row : trace.collectives)
    if (row.ranks <= state.domain)
      MFSDP_TRY(check_collective(
          {.kind = row.kind, .ranks = row.ranks, .bytes = row.bytes, .ns = row.ns, .place = place},
          gpu, wrong_trace(gpu)));
  for (const TracedCopy& row : trace.copies) {
    const double moved = 2 * static_cast<double>(row.bytes);
    if (moved < kLeastCopyBytes || moved / row.ns <= gpu.memory_bandwidth) continue;
    return fail(
        place,
        fmt::format("a copy of {} bytes runs at {:.4g} GB/s, read and written, above "
                    "the {:g} GB/s of the memory of {}{}",
                    row.bytes, moved / row.ns, gpu.memory_bandwidth, gpu.name, wrong_trace(gpu)));
  }
  return {};
}

}  // namespace

double attention_flops(bool backward, double batch, double seq, double heads, double head_dim) {
  return (backward ? 5.0 : 2.0) * batch * seq * seq * heads * head_dim;
}

Result<void> check_possible(const CalibrationState& state) {
  MFSDP_TRY(check_products(state.data, state.base));
  MFSDP_TRY(check_attention_rates(state.data, state.base));
  return check_collectives(state.data, state.base);
}

Result<void> check_traces(const CalibrationState& state) {
  for (const TraceRun& trace : state.data.traces) MFSDP_TRY(check_trace(trace, state));
  return {};
}

}  // namespace mfsdp
