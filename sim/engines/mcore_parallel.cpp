#include "sim/engines/mcore_parallel.hpp"

#include <fmt/format.h>

#include <string_view>

#include "sim/engines/engine.hpp"
#include "sim/engines/rank_model.hpp"

namespace mfsdp {
namespace {

void check_tp(EngineKind engine, const PlanConfig& config, Reasons& reasons) {
  const ModelShape& model = config.model;
  const std::int64_t tp = config.mesh.size(Axis::tp);
  const auto no = [&](std::string_view what) {
    reasons.add(cannot_predict(engine, "--tp", what, "take --tp 1"));
  };
  if (model.experts != 0) return no("experts");
  if (model.traits().latent_attention) return no("latent attention");
  if (model.traits().sinks) return no("attention sinks");
  if (config.has_fp8()) return no("--fp8");
  check_shares("--tp", tp,
               {{"attention heads", model.heads},
                {"key-value heads", model.kv_heads},
                {"features of the MLP", model.intermediate}},
               reasons);
}

void check_pieces(const McoreParallel& parallel, Reasons& reasons) {
  if (parallel.in_pieces && !parallel.sequence)
    reasons.add(fail("--engine-option", "tp_comm_overlap=true needs sequence_parallel=true"));
}

void check_rows(const PlanConfig& config, const McoreParallel& parallel, Reasons& reasons) {
  // Head and tail of a sequence are a rank's, and its rows are cut again by tp.
  const std::int64_t halves = parallel.cp > 1 ? 2 * parallel.cp : 1;
  const std::int64_t parts = halves * (parallel.sequence ? parallel.tp : 1);
  if (config.seq_len % parts == 0) return;
  reasons.add(fail(parallel.cp > 1 ? "--cp" : "--tp",
                   fmt::format("expected a multiple of {} tokens of a sequence (--seq-len), got {}",
                               parts, config.seq_len)));
}

void check_cp(EngineKind engine, const PlanConfig& config, const McoreParallel& parallel,
              Reasons& reasons) {
  const ModelShape& model = config.model;
  const auto no = [&](std::string_view what, std::string_view instead = "take --cp 1") {
    reasons.add(cannot_predict(engine, "--cp", what, instead));
  };
  if (!model.traits().rotates) return no("learned positions");
  if (model.experts != 0) return no("experts");
  if (model.traits().latent_attention) return no("latent attention");
  if (!model.sliding_layers.empty()) return no("sliding windows");
  if (model.traits().sinks) return no("attention sinks");
  if (parallel.comm == ContextComm::a2a)
    check_shares("--cp", parallel.cp * parallel.tp,
                 {{"attention heads (a2a: --cp times --tp)", model.heads},
                  {"key-value heads (a2a: --cp times --tp)", model.kv_heads}},
                 reasons);
}

}  // namespace

McoreParallel mcore_parallel(EngineKind engine, const PlanConfig& config,
                             const EngineOptions& options) {
  const std::int64_t tp = config.mesh.size(Axis::tp);
  return {.tp = tp,
          .cp = config.mesh.size(Axis::cp),
          .sequence = tp > 1 && options.is_on(engine, "sequence_parallel"),
          .in_pieces = tp > 1 && options.is_on(engine, "tp_comm_overlap"),
          .comm = options.get<ContextComm>(engine, "cp_comm_type"),
          .overlaps_gathers = options.is_on(engine, "overlap_param_gather"),
          .overlaps_reductions = options.is_on(engine, "overlap_grad_reduce")};
}

void check_mcore_parallel(EngineKind engine, const PlanConfig& config, const EngineOptions& options,
                          Reasons& reasons) {
  const McoreParallel parallel = mcore_parallel(engine, config, options);
  if (parallel.tp > 1) check_tp(engine, config, reasons);
  check_pieces(parallel, reasons);
  if (parallel.cp > 1) check_cp(engine, config, parallel, reasons);
  if (parallel.tp > 1 || parallel.cp > 1) check_rows(config, parallel, reasons);
}

}  // namespace mfsdp
