// Parts of --fidelity beyond the prices of single kernels.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/calibrate/fidelity.hpp"
#include "sim/calibrate/table_cells.hpp"
#include "sim/cost/nanos.hpp"
#include "sim/cost/tables.hpp"

namespace mfsdp {
namespace {

/// A row of h200_overlap.csv. Blocks: without a limit, NCCL's log states 24 channels for rings and
/// 9 for symmetric kernels.
struct OverlapCase {
  std::string_view name;
  Transport transport = Transport::nccl;
  double blocks = 0;
  double megabytes = 0;  ///< of the full buffer, 10^6
};

constexpr std::array<OverlapCase, 13> kOverlapCases{
    {{"ag_default", Transport::nccl, 24, 436.2},
     {"ag_max_ctas_4", Transport::nccl, 4, 436.2},
     {"ag_max_ctas_8", Transport::nccl, 8, 436.2},
     {"ag_symmetric", Transport::symmetric, 9, 436.2},
     {"ag_symmetric_efficiency", Transport::symmetric, 9, 436.2},
     {"ag_symmetric_copy_engine", Transport::copy_engine, 0, 436.2},
     {"rs_bf16_default", Transport::nccl, 24, 436.2},
     {"rs_bf16_max_ctas_8", Transport::nccl, 8, 436.2},
     {"rs_bf16_symmetric", Transport::symmetric, 9, 436.2},
     {"rs_bf16_symmetric_max_ctas_8", Transport::symmetric, 8, 436.2},
     {"rs_fp32_default", Transport::nccl, 24, 872.4},
     {"rs_fp32_symmetric", Transport::symmetric, 9, 872.4},
     {"rs_fp32_max_ctas_8", Transport::nccl, 8, 872.4}}};

/// Time that GEMMs lose beside four such collectives, which take `collectives_ms` alone. Beside
/// GEMMs the collectives take drag times as long and hold their SMs meanwhile. They move their
/// bytes once, which costs their draw, as these runs were always at the power limit. In a step the
/// clock accounts for the draw (power_mix.hpp).
double overlap_increment_ms(const Gpu& gpu, const OverlapCase& row, double collectives_ms) {
  constexpr double kRanks = 8;
  const double moved = 4 * 2 * (kRanks - 1) / kRanks * row.megabytes * 1e6;  // read and written
  const Contention cost = contention(gpu, {.transport = row.transport,
                                           .blocks = row.blocks,
                                           .bytes = moved,
                                           .duration_ns = collectives_ms * kNanosPerMilli});
  return collectives_ms *
         (share(cost.drag[KernelClass::product]) * share(cost.occupancy) + share(cost.draw));
}

/// The rows to which the constant of contention was fitted, with others of two GPUs.
bool is_fitted(std::string_view name) {
  return name == "ag_default" || name == "rs_bf16_default" || name == "rs_fp32_default";
}

}  // namespace

Result<CostModel> costs_on(const std::string& gpu, std::int64_t gpus, std::int64_t domains,
                           const std::filesystem::path& scenarios) {
  MFSDP_LET(kind, load_gpu(gpu, scenarios / "gpus"));
  MFSDP_LET(cluster, make_cluster(kind, gpus, gpus / domains));
  if (domains > 1) cluster.domain = gpus / domains;
  return make_cost_model(cluster);
}

Result<std::vector<FidelityRow>> contention_fidelity(const std::filesystem::path& scenarios) {
  const std::string source = "gpus/tables/h200_overlap.csv";
  MFSDP_LET(gpu, load_gpu("h200", scenarios / "gpus"));
  MFSDP_LET(table, read_table(scenarios / source));
  std::vector<FidelityRow> rows;
  double alone_ms = 0;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    MFSDP_LET(name, text_cell(table, row, "collective"));
    MFSDP_LET(measured_ms, number_cell(table, row, "gemms_with_4_collectives_ms"));
    if (name == "none") {
      alone_ms = measured_ms;
      continue;
    }
    if (alone_ms == 0) return fail(table.place(row), "the row none must come first");
    const auto known = std::ranges::find(kOverlapCases, std::string_view(name), &OverlapCase::name);
    if (known == kOverlapCases.end())
      return fail(table.place(row), fmt::format("unknown collective '{}'", name));
    MFSDP_LET(collectives_ms, number_cell(table, row, "collectives_alone_ms"));
    const double error =
        overlap_increment_ms(gpu, *known, collectives_ms) / (measured_ms - alone_ms) - 1;
    rows.push_back(
        {.group = "contention",
         .what = fmt::format("{}: GEMMs slowed by {:.2f} ms", name, measured_ms - alone_ms),
         .error = summarise({&error, 1}),
         .evaluation = is_fitted(name) ? Evaluation::fit : Evaluation::unseen,
         .trust_level = TrustLevel::calibrated,
         .source = source});
  }
  return rows;
}

Result<std::vector<FidelityRow>> network_fidelity(const std::filesystem::path& scenarios) {
  const std::string source = "fidelity/network_public.csv";
  const std::filesystem::path file = scenarios / source;
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::vector<FidelityRow>{};
  MFSDP_LET(text, read_file(file, "a table", kMostScenarioBytes));
  MFSDP_LET(table, CsvTable::parse(text, file.string()));
  MFSDP_LET(samples, parse_collective_samples(text, file.string()));
  std::vector<FidelityRow> rows;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const CollectiveSample& sample = samples[row];
    MFSDP_LET(gpu, text_cell(table, row, "gpu"));
    MFSDP_LET(costs, costs_on(gpu, sample.ranks, sample.nodes, scenarios));
    const CollectiveCost cost =
        costs.collective(sample.kind, sample.bytes, {.ranks = sample.ranks});
    const double error = static_cast<double>(cost.duration.value) / sample.ns - 1;
    rows.push_back(
        {.group = "network",
         .what = fmt::format("{} of {:.4g} MiB, {} {} in {} domains", to_string(sample.kind),
                             static_cast<double>(sample.bytes.value) / kMebibyte, sample.ranks, gpu,
                             sample.nodes),
         .error = summarise({&error, 1}),
         .evaluation = Evaluation::unseen,
         .trust_level = TrustLevel::datasheet,
         .source = source});
  }
  return rows;
}

}  // namespace mfsdp
