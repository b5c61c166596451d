#include "gpu_backend/tool/measured_run.hpp"

#include "core/base/quantity.hpp"
#include "reports/record/kernel_times.hpp"
#include "reports/record/step_figures.hpp"

namespace mfsdp {
namespace {

CategoryBytes without_runtime(CategoryBytes categories) {
  categories.at(static_cast<std::size_t>(Category::runtime)) = Bytes(0);
  return categories;
}

/// Measurements of a class. Its sends are those of the plan.
ClassReport measured_class(const ClassReport& predicted, const RanClass& ran, std::int64_t rank) {
  const Bytes runtime = ran.runtime.value_or(Bytes());
  const TimeSummary& time = ran.step.time;
  return {.role = predicted.role,
          .ranks = predicted.ranks,
          .allocated = ran.allocated + runtime,
          .peak = sum_of(without_runtime(ran.categories)) + runtime,
          .host = ran.host,
          .step = time.step,
          .compute = time.compute,
          .exposed_communication = time.exposed_communication,
          .idle = time.idle,
          .sends = predicted.sends,
          .fullest = predicted.fullest,
          .busiest = !ran.step.timeline.empty() && ran.step.rank == rank};
}

}  // namespace

MeasuredRun head_of(const RunFigures& predicted, const MachineFacts& facts) {
  MeasuredRun run;
  static_cast<RunHead&>(run) = predicted;
  run.cluster = facts.cluster;
  run.facts = facts.facts;  // the prediction's facts are those of the machine that it assumes
  run.status = RunStatus::running;
  run.plan = predicted.plan;
  run.traffic = predicted.traffic;
  forget_unmeasured(run);  // for the record that is stored until the run ends
  return run;
}

void complete(MeasuredRun& run, const RankMachine& machine, const PredictedRun& predicted) {
  const RanRun& ran = machine.measured();
  const MachineFacts facts = machine.facts();
  MemorySummary& memory = run.memory;
  memory.categories = ran.memory.categories;
  memory.categories.at(static_cast<std::size_t>(Category::runtime)) = ran.runtime.value_or(Bytes());
  memory.peak = sum_of(memory.categories);
  memory.allocated = machine.allocated() + ran.runtime.value_or(Bytes());
  memory.runtime_source = facts.runtime_source;
  memory.capacity = facts.capacity;
  memory.headroom = memory.capacity - Bytes(checked_mul(memory.allocated.value, facts.sharing));
  memory.fits = memory.headroom >= Bytes(0);
  if (!ran.step.timeline.empty())
    run.facts.push_back({.topic = std::string(kTimedTopic),
                         .name = std::string(kTimedRank),
                         .value = ran.step.rank});
  run.time = ran.step.time;
  run.timeline = ran.step.timeline;
  if (run.config.has_fp8() && !run.timeline.empty())
    for (Fact& fact : kernel_facts(kernel_times(run.timeline)))
      run.facts.push_back(std::move(fact));
  run.facts.insert(run.facts.end(), ran.step.exposed.begin(), ran.step.exposed.end());
  run.launches = ran.launches;
  if (ran.classes.size() == predicted.classes.size())
    for (std::size_t c = 0; c < ran.classes.size(); ++c)
      run.classes.push_back(measured_class(predicted.classes[c], ran.classes[c], ran.step.rank));
  run.absent = {};
}

bool used_as_planned(const PredictedRun& predicted, const MeasuredRun& run) {
  return without_runtime(run.memory.categories) == without_runtime(predicted.memory.categories);
}

}  // namespace mfsdp
