#include "gpu_backend/tool/measured_run.hpp"

#include <array>
#include <utility>

#include "core/base/quantity.hpp"
#include "gpu_backend/tool/predicted_run.hpp"
#include "reports/record/step_figures.hpp"

namespace mfsdp {
namespace {

constexpr std::array kOfThePlan{ResultFigure::plan, ResultFigure::all_gather_bytes,
                                ResultFigure::reduce_scatter_bytes, ResultFigure::all_reduce_bytes};

CategoryBytes without_runtime(CategoryBytes categories) {
  categories.at(static_cast<std::size_t>(Category::runtime)) = Bytes(0);
  return categories;
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
  for (const ResultFigure figure : kOfThePlan)
    if (predicted.absent.has(figure)) run.absent.add(figure);
  forget_unmeasured(run);  // for the record that is stored until the run ends
  return run;
}

void complete(MeasuredRun& run, const RankMachine& machine) {
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
  run.launches = ran.launches;
  // These are the prediction's, and no measurement has them.
  const FigureSet unknown = std::exchange(run.absent, {});
  for (const ResultFigure figure : kOfThePlan)
    if (unknown.has(figure)) run.absent.add(figure);
}

bool used_as_planned(const PredictedRun& predicted, const MeasuredRun& run) {
  if (!is_predicted(predicted)) return true;
  return without_runtime(run.memory.categories) == without_runtime(predicted.memory.categories);
}

}  // namespace mfsdp
