#include "sim/predict/prediction_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "core/plan/attention_choice.hpp"
#include "core/plan/without_passes.hpp"
#include "core/schedule/build.hpp"
#include "sim/hardware/power.hpp"
#include "sim/predict/engine_moments.hpp"
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

/// The routing report, with the memory at the smallest sufficient capacity factor.
Result<RoutingReport> routing_of(const PredictionRequest& request, Bytes allocated) {
  RoutingReport report =
      routing_report(request.routed->routing, request.routed->blocks, request.config);
  if (!report.room) return report;
  RoutingRoom& room = *report.room;
  room.least_allocated = allocated;
  if (request.config.capacity_factor != room.least_factor) {
    PlanConfig least = request.config;
    least.capacity_factor = room.least_factor;
    MFSDP_LET(program, build_program(least, request.meta, request.cache.get()));
    room.least_allocated = footprint(program, request.costs->cluster().gpu).allocated;
  }
  room.least_fits = fits(room.least_allocated, request);
  return report;
}

/// Our measured error in runs of the request's kind. Runs with other options are of another kind.
StepEvidence evidence_of(const PredictionRequest& request) {
  StepEvidence evidence{.kind = prediction_kind(request.engine, request.options, request.config,
                                                request.costs->cluster().gpu),
                        .error = {}};
  if (request.own_runs) evidence.error = own_error(request.own_runs->steps, evidence.kind);
  if (const Plan* plan = request.program->find_plan(PlanRole::train))
    evidence.unmeasured = request.costs->unmeasured(*plan);
  return evidence;
}

PredictionKind memory_kind(const PredictionRequest& request) {
  return memory_kind(request.engine, request.options, request.config, request.costs->cluster().gpu);
}

std::optional<MemoryErrors> memory_errors(const PredictionRequest& request) {
  if (!request.own_runs) return std::nullopt;
  const PredictionKind kind = memory_kind(request);
  return memory_band(own_memory_error(request.own_runs->memory, kind), kind);
}

/// Adds the assumption on when the engine reduces the gradients of several microbatches.
void add_reductions(PredictedRun& run, const PredictionRequest& request) {
  const Plan* plan = request.program->find_plan(PlanRole::train);
  if (traits_of(request.engine).runs_plans || plan == nullptr) return;
  if (const auto when = gradient_reductions(*request.program, *plan))
    run.facts.push_back({.topic = "simulation",
                         .name = "gradient_reductions",
                         .value = reduction_statement(request.engine, *when, run.parameters)});
}

/// The step with times of its ops, on which it depends when memory that other streams use is free.
Result<EngineStep> timed(EngineStep step, const EngineMachine& machine,
                         const PredictionRequest& request) {
  const IssueTime host = host_time(step, machine.gpu);
  MFSDP_LET(prediction, predict({&step.plan.program, 1}, *request.costs, {}, {{host}}, {}, "-"));
  if (!prediction.run.omitted.empty()) return step;  // the timeline is not whole
  std::vector<OpMoment> moments = moments_of(step.plan, prediction.run.timeline, host);
  return with_moments(std::move(step), std::move(moments), machine);
}

}  // namespace

std::span<const Program> programs_of(const PredictionRequest& request) {
  if (request.without_passes) return request.without_passes->programs;
  return {request.program.get(), 1};
}

void set_job(PredictionRequest& request, std::shared_ptr<const Job> job, std::string hash) {
  request.job = request.without_passes = std::move(job);
  if (has_passes(*request.job))
    request.without_passes = std::make_shared<const Job>(without_passes(*request.job));
  request.program = {request.without_passes, request.without_passes->programs.data()};
  request.plan_hash = std::move(hash);
}

bool fits(Bytes memory, const PredictionRequest& request) {
  return memory + request.reserve <= request.costs->cluster().gpu.capacity;
}

Footprint footprint_of(const PredictionRequest& request) {
  const Gpu& gpu = request.costs->cluster().gpu;
  if (request.step) return footprint(*request.step);
  const std::span<const Program> programs = programs_of(request);
  return footprint(programs[fullest_class(programs, gpu)], gpu);
}

bool fits(const PredictionRequest& request) {
  return request.step ? request.step->fits : fits(footprint_of(request).allocated, request);
}

Bytes least_allocated(const PredictionRequest& request) {
  const Gpu& gpu = request.costs->cluster().gpu;
  if (request.program) return footprint_of(request).least;
  if (!traits_of(request.engine).runs_plans) return {};
  try {
    LeastMemoryTable alone;
    LeastMemoryTable& table = request.least ? *request.least : alone;
    const LeastMemory least = table.of(request.config);
    return least.pools + runtime_bytes(gpu, least.communicators);
  } catch (const OverflowError&) {
    return {};  // with_program() reports the overflow
  }
}

bool cannot_fit(const PredictionRequest& request) {
  PredictionRequest smaller = request;
  const std::int64_t micro_batch = request.config.micro_batch;
  for (std::int64_t size = 1;; size = std::min(2 * size, micro_batch)) {
    smaller.config.micro_batch = size;
    if (!fits(least_allocated(smaller), request)) return true;
    if (size >= micro_batch) return false;
  }
}

Result<PredictionRequest> with_program(PredictionRequest request) {
  if (request.program) return request;
  if (!traits_of(request.engine).runs_plans) {
    const EngineMachine machine{.options = request.options,
                                .settings = request.allocator,
                                .gpu = request.costs->cluster().gpu,
                                .reserve = request.reserve,
                                .errors = memory_errors(request)};
    MFSDP_LET(stages, engine_steps(request.engine, request.config, request.meta, machine));
    const bool is_one = stages.size() == 1;
    if (is_one && !stages[0].plan.in_use.empty())
      MFSDP_SET(stages[0], timed(std::move(stages[0]), machine, request));
    request.stages = std::make_shared<const std::vector<EngineStep>>(std::move(stages));
    request.step = {request.stages, &(*request.stages)[fullest_stage(*request.stages)]};
    request.program = {request.step, &request.step->plan.program};
    if (is_one) return request;
    Job job;
    for (const EngineStep& step : *request.stages) job.programs.push_back(step.plan.program);
    std::string hash = plan_hash(job);
    set_job(request, std::make_shared<const Job>(std::move(job)), std::move(hash));
    request.program = {request.step, &request.step->plan.program};
    return request;
  }
  MFSDP_LET(job, build_job(request.config, request.meta, request.cache.get()));
  if (job.programs.size() > 1) {
    std::string hash = plan_hash(job);
    set_job(request, std::make_shared<const Job>(std::move(job)), std::move(hash));
  } else {
    request.program = std::make_shared<const Program>(std::move(job.programs.front()));
  }
  return request;
}

Result<Prediction> predict(const PredictionRequest& asked) {
  MFSDP_LET(request, with_program(asked));
  std::vector<Issuing> hosts;
  if (request.stages) hosts = issuing_of(*request.stages, request.costs->cluster().gpu);
  RoutedRows routed;
  if (request.routed && !request.routed->routing.is_balanced())
    routed = slowest_rows(request.routed->blocks, *request.program);
  MFSDP_LET(prediction, predict(programs_of(request), *request.costs, request.variation, hosts,
                                routed, request.plan_hash));
  MemorySummary& memory = prediction.run.memory;
  memory.reserve = request.reserve;
  memory.headroom -= request.reserve;
  memory.fits = fits(memory.allocated, request);
  if (request.stages) complete(prediction.run, *request.stages, request.costs->cluster().gpu);
  PredictedRun& run = prediction.run;
  if (request.step && !request.step->errors)
    run.facts.push_back({.topic = "simulation",
                         .name = "memory_error",
                         .value = unknown_memory_error(memory_kind(request))});
  if (std::string options = request.options.statement(request.engine, option_uses(request.config));
      !options.empty())
    run.facts.push_back(
        {.topic = "simulation", .name = "engine_options", .value = std::move(options)});
  add_reductions(run, request);
  if (request.step && request.allocator.limit)
    run.facts.push_back({.topic = "simulation",
                         .name = std::string(kMemoryLimit),
                         .value = *request.allocator.limit});
  const Trust trust =
      trust_of(*request.costs, request.errors, run.time, evidence_of(request), request.anchor);
  run.calibration = trust.calibration;
  run.trust = {.trust_level = std::string(to_string(trust.trust_level)),
               .step_error = trust.expected_step_error,
               .text = trust.text};
  if (std::string basis = engine_basis(request.engine, request.config); !basis.empty())
    run.facts.push_back({.topic = "simulation", .name = "engine_basis", .value = std::move(basis)});
  if (const std::string& tables = request.costs->cluster().gpu.published_prices; !tables.empty())
    run.facts.push_back({.topic = "simulation", .name = "published_prices", .value = tables});
  if (const std::string& tables = request.costs->cluster().gpu.priced_by; !tables.empty())
    run.facts.push_back({.topic = "simulation", .name = "priced_by", .value = tables});
  const bool can_choose = !request.costs->cluster().gpu.tables.attention_warpgroups.empty();
  if (can_choose && !request.costs->has_warpgroups())
    run.facts.push_back({.topic = "simulation",
                         .name = "attention",
                         .value = std::string(to_string(AttentionChoice::cudnn))});
  if (std::string power = power_statement(request.costs->cluster().gpu); !power.empty())
    run.facts.push_back({.topic = "simulation", .name = "power", .value = std::move(power)});
  if (std::string assumed = assumed_statement(request.costs->cluster().gpu); !assumed.empty())
    run.facts.push_back({.topic = "simulation", .name = "assumed", .value = std::move(assumed)});
  if (request.anchor)
    run.facts.push_back({.topic = "simulation", .name = "anchor", .value = request.anchor->text()});
  if (request.routed) {
    MFSDP_LET(report, routing_of(request, memory.allocated));
    for (Fact& fact : routing_facts(report)) run.facts.push_back(std::move(fact));
    run.routing = std::move(report);
  }
  const bool differ = programs_of(request).size() == 1 || request.variation.is_any();
  if (differ) run.ranks = report_of(prediction.simulation.ranks, request.variation);
  return std::move(prediction);
}

}  // namespace mfsdp
