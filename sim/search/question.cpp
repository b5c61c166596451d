#include "sim/search/question.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "core/plan/attention_choice.hpp"
#include "core/schedule/build.hpp"
#include "sim/hardware/power.hpp"
#include "sim/predict/gradient_reductions.hpp"
#include "sim/predict/run_facts.hpp"

namespace mfsdp {

namespace {

std::string text_of(const RankVariation& variation) {
  std::string text;
  if (variation.jitter.num > 0)
    text = fmt::format("jitter {}, seed {}", variation.jitter.value(), variation.seed);
  for (const SlowRank& slow : variation.slow)
    text += fmt::format("{}rank {} x {}", text.empty() ? "" : ", ", slow.rank, slow.factor.value());
  return text;
}

std::optional<RankReport> report_of(const RankSummary& ranks, const RankVariation& variation) {
  if (ranks.simulated == 1) return std::nullopt;
  return RankReport{.ranks = ranks.ranks,
                    .simulated = ranks.simulated,
                    .slowest = ranks.slowest,
                    .compute_mean = ranks.compute_mean,
                    .compute_most = ranks.compute_most,
                    .waiting_mean = ranks.waiting_mean,
                    .variation = text_of(variation)};
}

/// The report with the memory that the least factor needs.
Result<RoutingReport> routing_of(const Question& question, Bytes allocated) {
  RoutingReport report =
      routing_report(question.routed->routing, question.routed->blocks, question.config);
  if (!report.room) return report;
  RoutingRoom& room = *report.room;
  room.least_allocated = allocated;
  if (question.config.capacity_factor != room.least_factor) {
    PlanConfig least = question.config;
    least.capacity_factor = room.least_factor;
    MFSDP_LET(program, build_program(least, question.meta, question.cache.get()));
    room.least_allocated = footprint(program, question.costs->cluster().gpu).allocated;
  }
  room.least_fits = fits(room.least_allocated, question);
  return report;
}

/// Our own error in runs of the question's kind.
StepEvidence evidence_of(const Question& question) {
  StepEvidence evidence{
      .kind = prediction_kind(question.engine, question.config, question.costs->cluster().gpu),
      .error = {}};
  if (question.own_steps) evidence.error = own_error(*question.own_steps, evidence.kind);
  return evidence;
}

/// What an engine was taken to do with the gradients of several microbatches.
void add_reductions(PredictedRun& run, const Question& question) {
  const Plan* plan = question.program->find_plan(kTrainPlan);
  if (traits_of(question.engine).runs_plans || plan == nullptr) return;
  if (const auto when = gradient_reductions(*question.program, *plan))
    run.facts.push_back({.topic = "simulation",
                         .name = "gradient_reductions",
                         .value = reduction_statement(question.engine, *when, run.parameters)});
}

}  // namespace

bool fits(Bytes memory, const Question& question) {
  return memory + question.reserve <= question.costs->cluster().gpu.capacity;
}

Footprint footprint_of(const Question& built) {
  const Gpu& gpu = built.costs->cluster().gpu;
  return built.step ? footprint(*built.step) : footprint(*built.program, gpu);
}

bool fits(const Question& built) {
  return built.step ? built.step->fits : fits(footprint_of(built).allocated, built);
}

Bytes least_allocated(const Question& question) {
  const Gpu& gpu = question.costs->cluster().gpu;
  if (question.program) return footprint_of(question).least;
  if (!traits_of(question.engine).runs_plans) return {};
  try {
    LeastMemoryTable alone;
    LeastMemoryTable& table = question.least ? *question.least : alone;
    const LeastMemory least = table.of(question.config);
    return least.pools + runtime_bytes(gpu, least.communicators);
  } catch (const OverflowError&) {
    return {};  // building it says what is too large
  }
}

bool cannot_fit(const Question& question) {
  Question smaller = question;
  const std::int64_t micro_batch = question.config.micro_batch;
  for (std::int64_t size = 1;; size = std::min(2 * size, micro_batch)) {
    smaller.config.micro_batch = size;
    if (!fits(least_allocated(smaller), question)) return true;
    if (size >= micro_batch) return false;
  }
}

Result<Question> built(Question question) {
  if (question.program) return question;
  if (!traits_of(question.engine).runs_plans) {
    MFSDP_LET(step, engine_step(question.engine, question.config, question.meta,
                                {.settings = question.allocator,
                                 .gpu = question.costs->cluster().gpu,
                                 .reserve = question.reserve}));
    question.step = std::make_shared<const EngineStep>(std::move(step));
    question.program = {question.step, &question.step->plan.program};
    return question;
  }
  MFSDP_LET(program, build_program(question.config, question.meta, question.cache.get()));
  question.program = std::make_shared<const Program>(std::move(program));
  return question;
}

Result<Prediction> answer(const Question& asked) {
  MFSDP_LET(question, built(asked));
  std::function<Nanos(const Op&)> host;
  if (question.step) host = host_times(*question.step, question.costs->cluster().gpu);
  RoutedRows routed;
  if (question.routed && !question.routed->routing.is_balanced())
    routed = slowest_rows(question.routed->blocks, *question.program);
  MFSDP_LET(prediction,
            predict(*question.program, *question.costs, question.variation, host, routed));
  MemorySummary& memory = prediction.run.memory;
  memory.reserve = question.reserve;
  memory.headroom -= question.reserve;
  memory.fits = fits(memory.allocated, question);
  if (question.step) complete(prediction.run, *question.step, question.costs->cluster().gpu);
  PredictedRun& run = prediction.run;
  add_reductions(run, question);
  if (question.step && question.allocator.limit)
    run.facts.push_back({.topic = "simulation",
                         .name = std::string(kMemoryLimit),
                         .value = *question.allocator.limit});
  const Trust trust =
      trust_of(*question.costs, question.errors, run.time, evidence_of(question), question.anchor);
  run.calibration = trust.calibration;
  run.trust = {.tier = std::string(tier_text(trust.tier)),
               .step_error = trust.expected_step_error,
               .text = trust.text};
  if (const std::string_view basis = traits_of(question.engine).basis; !basis.empty())
    run.facts.push_back(
        {.topic = "simulation", .name = "engine_basis", .value = std::string(basis)});
  if (const std::string& tables = question.costs->cluster().gpu.published_prices; !tables.empty())
    run.facts.push_back({.topic = "simulation", .name = "published_prices", .value = tables});
  if (const std::string& tables = question.costs->cluster().gpu.priced_by; !tables.empty())
    run.facts.push_back({.topic = "simulation", .name = "priced_by", .value = tables});
  const bool can_choose = !question.costs->cluster().gpu.tables.attention_warpgroups.empty();
  if (can_choose && !question.costs->has_warpgroups())
    run.facts.push_back({.topic = "simulation",
                         .name = "attention",
                         .value = std::string(to_string(AttentionChoice::cudnn))});
  if (std::string power = power_statement(question.costs->cluster().gpu); !power.empty())
    run.facts.push_back({.topic = "simulation", .name = "power", .value = std::move(power)});
  if (question.anchor)
    run.facts.push_back(
        {.topic = "simulation", .name = "anchor", .value = question.anchor->text()});
  if (question.routed) {
    MFSDP_LET(report, routing_of(question, memory.allocated));
    for (Fact& fact : routing_facts(report)) run.facts.push_back(std::move(fact));
    run.routing = std::move(report);
  }
  run.ranks = report_of(prediction.simulation.ranks, question.variation);
  return std::move(prediction);
}

}  // namespace mfsdp
