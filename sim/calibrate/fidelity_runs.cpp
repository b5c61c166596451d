// The parts of --fidelity that price or predict more than single kernels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/model/hf_config.hpp"
#include "core/schedule/build.hpp"
#include "sim/calibrate/fidelity.hpp"
#include "sim/calibrate/table_cells.hpp"
#include "sim/cost/nanos.hpp"
#include "sim/cost/tables.hpp"
#include "sim/predict/predict.hpp"

namespace mfsdp {
namespace {

/// A row of h200_overlap.csv. Blocks: NCCL's log names 24 channels for rings and 9 for symmetric
/// kernels where nothing limits them.
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

/// What GEMMs lose beside four such collectives, which take that long alone: they take drag times
/// as long beside them, hold their SMs all the while and move their bytes once.
double overlap_increment_ms(const Gpu& gpu, const OverlapCase& row, double collectives_ms) {
  constexpr double kRanks = 8;
  const double moved = 4 * 2 * (kRanks - 1) / kRanks * row.megabytes * 1e6;  // read and written
  const Contention cost = contention(gpu, {.transport = row.transport,
                                           .blocks = row.blocks,
                                           .bytes = moved,
                                           .duration_ns = collectives_ms * kNanosPerMilli});
  const auto share = [](std::int64_t parts) {
    return static_cast<double>(parts) / static_cast<double>(kContentionUnit);
  };
  return collectives_ms * (share(cost.drag) * share(cost.occupancy) + share(cost.traffic));
}

/// The rows that contention's one number was fitted on, with others of two GPUs.
bool is_fitted(std::string_view name) {
  return name == "ag_default" || name == "rs_bf16_default" || name == "rs_fp32_default";
}

Result<CostModel> costs_on(const std::string& gpu, std::int64_t gpus, std::int64_t domains,
                           const std::filesystem::path& scenarios) {
  MFSDP_LET(kind, load_gpu(gpu, scenarios / "gpus"));
  MFSDP_LET(cluster, make_cluster(kind, gpus, gpus / domains));
  if (domains > 1) cluster.domain = gpus / domains;
  return make_cost_model(cluster);
}

/// The configuration that a row of peers_8xh200.csv names.
Result<PlanConfig> peer_config(const CsvTable& table, std::size_t row, const ModelShape& model) {
  MFSDP_LET(gpus, integer_cell(table, row, "gpus"));
  MFSDP_LET(seq_len, integer_cell(table, row, "seq_len"));
  MFSDP_LET(micro_batch, integer_cell(table, row, "micro_batch"));
  MFSDP_LET(recompute, text_cell(table, row, "recompute"));
  MFSDP_LET(reduce_dtype, text_cell(table, row, "reduce_dtype"));
  const auto policy = parse<Recompute>(recompute);
  const auto wire = parse<DType>(reduce_dtype);
  if (!policy || !wire)
    return fail(table.place(row),
                fmt::format("recompute is \"{}\" and reduce_dtype \"{}\"; "
                            "expected {}, and {}",
                            recompute, reduce_dtype, name_list<Recompute>(), name_list<DType>()));
  PlanConfig config;
  config.model = model;
  config.mesh = data_parallel_mesh(1, gpus);
  config.seq_len = seq_len;
  config.micro_batch = micro_batch;
  config.recompute = {.kind = *policy};
  config.reduce_dtype = *wire;
  config.clip = {0, 1};  // none of them clips
  MFSDP_TRY(validate(config));
  return config;
}

Result<FidelityRow> peer_row(const CsvTable& table, std::size_t row,
                             const std::filesystem::path& scenarios, const std::string& source) {
  MFSDP_LET(model_name, text_cell(table, row, "model"));
  MFSDP_LET(system, text_cell(table, row, "system"));
  MFSDP_LET(variant, text_cell(table, row, "variant"));
  MFSDP_LET(measured_ms, number_cell(table, row, "step_ms"));
  MFSDP_LET(model, load_model(model_name, scenarios / "models"));
  MFSDP_LET(config, peer_config(table, row, model.shape));
  MFSDP_LET(
      program,
      build_program(config, {.model_name = model.name, .tool_version = "", .stored_hash = ""}));
  MFSDP_LET(costs, costs_on("h200", config.mesh.world_size(), 1, scenarios));
  MFSDP_LET(prediction, predict(program, costs));
  const double predicted_ms = static_cast<double>(prediction.run.time.step.value) / kNanosPerMilli;
  const double ratio = predicted_ms / measured_ms - 1;
  return FidelityRow{
      .group = "step",
      .what = fmt::format("{} {}, sequence {} x {}, recompute {}, {} wire: {:.1f} ms; ours would "
                          "take {:.1f} ms",
                          system, variant, config.micro_batch, config.seq_len,
                          to_string(config.recompute.kind), to_string(config.reduce_dtype),
                          measured_ms, predicted_ms),
      .error = summarise({&ratio, 1}),
      .evaluation = Evaluation::comparison,
      .tier = Tier::calibrated,
      .source = source};
}

}  // namespace

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
      return fail(table.place(row), fmt::format("'{}' is no collective that was described", name));
    MFSDP_LET(collectives_ms, number_cell(table, row, "collectives_alone_ms"));
    const double error =
        overlap_increment_ms(gpu, *known, collectives_ms) / (measured_ms - alone_ms) - 1;
    rows.push_back(
        {.group = "contention",
         .what = fmt::format("{}: GEMMs slowed by {:.2f} ms", name, measured_ms - alone_ms),
         .error = summarise({&error, 1}),
         .evaluation = is_fitted(name) ? Evaluation::fit : Evaluation::unseen,
         .tier = Tier::calibrated,
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
         .tier = Tier::datasheet,
         .source = source});
  }
  return rows;
}

Result<std::vector<FidelityRow>> step_fidelity(const std::filesystem::path& scenarios) {
  const std::string source = "fidelity/peers_8xh200.csv";
  std::vector<FidelityRow> rows;
  std::error_code ignored;
  if (!std::filesystem::exists(scenarios / source, ignored)) return rows;
  MFSDP_LET(table, read_table(scenarios / source));
  for (std::size_t row = 0; row < table.rows(); ++row) {
    MFSDP_LET(peer, peer_row(table, row, scenarios, source));
    rows.push_back(std::move(peer));
  }
  return rows;
}

}  // namespace mfsdp
