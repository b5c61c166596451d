// Full steps of other systems (scenarios/fidelity/peers_8xh200.csv), compared with our executor's
// step and with the prediction for the engine that ran them.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "core/model/hf_config.hpp"
#include "core/schedule/build.hpp"
#include "sim/calibrate/fidelity.hpp"
#include "sim/calibrate/table_cells.hpp"
#include "sim/cost/nanos.hpp"
#include "sim/cost/tables.hpp"
#include "sim/engines/engine.hpp"
#include "sim/predict/engine_step.hpp"
#include "sim/predict/predict.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kSource = "fidelity/peers_8xh200.csv";
constexpr double kGibibyte = 1024 * static_cast<double>(kMebibyte);

struct System {
  std::string_view system;
  std::string_view variant;
  EngineKind engine = EngineKind::mfsdp;
  AllocatorPolicy allocator = AllocatorPolicy::best_fit;
};

constexpr std::array<System, 6> kSystems{
    {{"pytorch_fsdp2", "eager", EngineKind::fsdp2},
     {"pytorch_fsdp2", "compile", EngineKind::fsdp2_compile},
     {"megatron_fsdp_v1", "fused_elementwise", EngineKind::megatron_fsdp_v1},
     {"megatron_fsdp_v1", "fused_elementwise+double_buffer", EngineKind::megatron_fsdp_v1,
      AllocatorPolicy::double_buffer},
     {"megatron_fsdp_v2", "eager", EngineKind::megatron_fsdp_v2_eager},
     {"megatron_fsdp_v2", "fused_elementwise", EngineKind::megatron_fsdp_v2}}};

/// A row, and the configuration to predict for it.
struct Peer {
  std::string what;
  System system;
  PlanConfig config;
  std::string model;
  double step_ms = 0;
  double allocated_gib = 0;
  double reserved_gib = 0;
};

Result<System> system_of(const CsvTable& table, std::size_t row) {
  MFSDP_LET(system, text_cell(table, row, "system"));
  MFSDP_LET(variant, text_cell(table, row, "variant"));
  for (const System& known : kSystems)
    if (known.system == system && known.variant == variant) return known;
  return fail(table.place(row),
              fmt::format("'{}', '{}' is not a system with a modelled engine", system, variant));
}

Result<PlanConfig> peer_config(const CsvTable& table, std::size_t row, const ModelShape& model) {
  PlanConfig config;
  MFSDP_LET(gpus, integer_cell(table, row, "gpus"));
  MFSDP_SET(config.seq_len, integer_cell(table, row, "seq_len"));
  MFSDP_SET(config.micro_batch, integer_cell(table, row, "micro_batch"));
  MFSDP_LET(recompute, text_cell(table, row, "recompute"));
  MFSDP_LET(reduce_dtype, text_cell(table, row, "reduce_dtype"));
  const auto policy = parse<Recompute>(recompute);
  const auto wire = parse<DType>(reduce_dtype);
  if (!policy || !wire)
    return fail(table.place(row),
                fmt::format("recompute is \"{}\" and reduce_dtype \"{}\"; "
                            "expected {}, and {}",
                            recompute, reduce_dtype, name_list<Recompute>(), name_list<DType>()));
  config.model = model;
  config.mesh = data_parallel_mesh(1, gpus);
  config.recompute = {.kind = *policy};
  config.reduce_dtype = *wire;
  config.clip = {0, 1};  // none of them clips
  MFSDP_TRY(validate(config));
  return config;
}

Result<Peer> peer_of(const CsvTable& table, std::size_t row,
                     const std::filesystem::path& scenarios) {
  Peer peer;
  MFSDP_SET(peer.system, system_of(table, row));
  MFSDP_LET(model_name, text_cell(table, row, "model"));
  MFSDP_SET(peer.step_ms, number_cell(table, row, "step_ms"));
  MFSDP_SET(peer.allocated_gib, number_cell(table, row, "peak_allocated_gib"));
  MFSDP_SET(peer.reserved_gib, number_cell(table, row, "peak_reserved_gib"));
  MFSDP_LET(model, load_model(model_name, scenarios / "models"));
  peer.model = model.name;
  MFSDP_SET(peer.config, peer_config(table, row, model.shape));
  const PlanConfig& config = peer.config;
  peer.what =
      fmt::format("{} {}, sequence {} x {}, recompute {}, {} wire: {:.1f} ms", peer.system.system,
                  peer.system.variant, config.micro_batch, config.seq_len,
                  to_string(config.recompute.kind), to_string(config.reduce_dtype), peer.step_ms);
  return peer;
}

Result<std::vector<Peer>> read_peers(const std::filesystem::path& scenarios) {
  std::vector<Peer> peers;
  std::error_code ignored;
  if (!std::filesystem::exists(scenarios / kSource, ignored)) return peers;
  MFSDP_LET(table, read_table(scenarios / kSource));
  for (std::size_t row = 0; row < table.rows(); ++row) {
    MFSDP_LET(peer, peer_of(table, row, scenarios));
    peers.push_back(std::move(peer));
  }
  return peers;
}

double milliseconds(const Prediction& prediction) {
  return static_cast<double>(prediction.run.time.step.value) / kNanosPerMilli;
}

FidelityRow row_of(std::string group, std::string what, std::span<const double> errors,
                   Evaluation evaluation) {
  return {.group = std::move(group),
          .what = std::move(what),
          .error = summarise(errors),
          .evaluation = evaluation,
          .trust_level = TrustLevel::calibrated,
          .source = std::string(kSource)};
}

/// Errors of one row: predicted / measured - 1.
struct EngineErrorsOfRow {
  double predicted_ms = 0;
  double step = 0;
  double allocated = 0;
  double reserved = 0;
};

Result<EngineErrorsOfRow> engine_errors_of(const Peer& peer, const CostModel& costs) {
  PlanConfig asked = peer.config;
  asked.allocator = peer.system.allocator;
  MFSDP_LET(config, engine_config(peer.system.engine, asked));
  const Gpu& gpu = costs.cluster().gpu;
  MFSDP_LET(stages, engine_steps(peer.system.engine, config, {},
                                 {.settings = {}, .gpu = gpu, .reserve = Bytes(0)}));
  const EngineStep& step = stages.front();
  MFSDP_LET(prediction, predict(step.plan.program, costs, {}, issuing_of(stages, gpu)));
  const AllocatorCounters& counters = step.memory.counters;
  const auto over = [](std::int64_t bytes, double gib) {
    return static_cast<double>(bytes) / kGibibyte / gib - 1;
  };
  const double predicted_ms = milliseconds(prediction);
  return EngineErrorsOfRow{.predicted_ms = predicted_ms,
                           .step = predicted_ms / peer.step_ms - 1,
                           .allocated = over(counters.peak_allocated, peer.allocated_gib),
                           .reserved = over(counters.peak_reserved, peer.reserved_gib)};
}

/// Time of mfsdp's step with the same configuration and cuDNN's attention, which all these systems
/// used.
Result<double> our_milliseconds(const Peer& peer, const CostModel& costs) {
  MFSDP_LET(program,
            build_program(peer.config,
                          {.model_name = peer.model, .tool_version = "", .stored_hash = ""}));
  MFSDP_LET(prediction, predict(program, costs.with_library_attention()));
  return milliseconds(prediction);
}

}  // namespace

Result<std::vector<FidelityRow>> step_fidelity(const std::filesystem::path& scenarios) {
  MFSDP_LET(peers, read_peers(scenarios));
  std::vector<FidelityRow> rows;
  std::vector<FidelityRow> of_engines;
  std::vector<double> steps;
  std::vector<double> allocated;
  std::vector<double> reserved;
  // Nothing was fitted to these rows; memory snapshots of two, eager and compiled, were inspected.
  constexpr Evaluation kHow = Evaluation::unseen;
  for (const Peer& peer : peers) {
    MFSDP_LET(costs, costs_on("h200", peer.config.mesh.world_size(), 1, scenarios));
    MFSDP_LET(ours, our_milliseconds(peer, costs));
    const double error = ours / peer.step_ms - 1;
    rows.push_back(
        row_of("step",
               fmt::format("{}; ours would take {:.1f} ms with cuDNN's attention", peer.what, ours),
               {&error, 1}, Evaluation::comparison));
    MFSDP_LET(errors, engine_errors_of(peer, costs));
    of_engines.push_back(row_of("engine",
                                fmt::format("{}; {} {:.1f} ms", peer.what,
                                            to_string(peer.system.engine), errors.predicted_ms),
                                {&errors.step, 1}, kHow));
    steps.push_back(errors.step);
    allocated.push_back(errors.allocated);
    reserved.push_back(errors.reserved);
  }
  rows.insert(rows.end(), of_engines.begin(), of_engines.end());
  if (peers.empty()) return rows;
  rows.push_back(row_of("engine", "all: step", steps, kHow));
  rows.push_back(row_of("engine", "all: allocated memory", allocated, kHow));
  rows.push_back(row_of("engine", "all: reserved memory", reserved, kHow));
  return rows;
}

}  // namespace mfsdp
