#include "sim/predict/engine_step.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "sim/engines/plan_engine.hpp"
#include "sim/engines/pytorch_process.hpp"
#include "sim/predict/live_peak.hpp"

namespace mfsdp {
namespace {

/// Raises each pool to its stream's reserved bytes, and its lower bound to the allocated bytes.
void raise_pools(Program& program, const EngineMemory& memory) {
  for (Pool& pool : program.pools) {
    const auto found = std::ranges::find(memory.streams, pool.name, &StreamMemory::name);
    if (found == memory.streams.end()) continue;
    pool.height = found->reserved;
    pool.lower_bound = found->allocated;
  }
}

/// Result of a run with a memory limit.
struct Attempt {
  bool fits = true;
  EngineMemory memory;

  /// Every retry releases all cached blocks, a sign of too little memory.
  [[nodiscard]] bool fits_without_retries() const { return fits && memory.counters.retries == 0; }
};

class Room {
 public:
  Room(const EnginePlan& plan, const AllocatorSettings& settings, const EngineMemory& unlimited)
      : plan_(plan), settings_(settings), unlimited_(unlimited) {}

  [[nodiscard]] Attempt of(double bytes) const {
    const bool collects = settings_.garbage_collection_threshold > 0;
    if (!collects && static_cast<double>(unlimited_.counters.peak_reserved) <= bytes)
      return {.fits = true, .memory = unlimited_};
    if (static_cast<double>(unlimited_.counters.peak_allocated) > bytes)
      return {.fits = false, .memory = unlimited_};
    AllocatorSettings limited = settings_;
    limited.limit = static_cast<std::int64_t>(bytes);
    EngineMemory memory = engine_memory(plan_, limited);
    if (memory.out_of_memory) return {.fits = false, .memory = unlimited_};
    return {.fits = true, .memory = std::move(memory)};
  }

 private:
  const EnginePlan& plan_;
  AllocatorSettings settings_;
  const EngineMemory& unlimited_;
};

/// Sets the memory that the allocator takes, and whether there is room for it.
void count_memory(EngineStep& step, const EngineMachine& machine) {
  step.settings = machine.settings;
  if (!machine.settings.limit) step.settings.garbage_collection_threshold = 0;
  AllocatorSettings settings = step.settings;
  settings.limit.reset();
  const EngineMemory unlimited = engine_memory(step.plan, settings);
  const Bytes left = machine.gpu.capacity - step.outside - machine.reserve;
  step.room = std::min(left, Bytes(machine.settings.limit.value_or(left.value)));
  step.settings.limit = std::max<std::int64_t>(step.room.value, 0);
  const auto room = static_cast<double>(*step.settings.limit);
  const Room rooms(step.plan, step.settings, unlimited);
  Attempt tried = rooms.of(room);
  step.fits = tried.fits;
  step.memory = std::move(tried.memory);
  const double error = error_of_room(machine.errors);
  step.certain = step.fits ? rooms.of(room * (1 - error)).fits_without_retries()
                           : !rooms.of(room * (1 + error)).fits;
  raise_pools(step.plan.program, step.memory);
}

}  // namespace

EngineStep with_moments(EngineStep step, std::vector<OpMoment> moments,
                        const EngineMachine& machine) {
  step.plan.moments = std::move(moments);
  count_memory(step, machine);
  return step;
}

double error_of_room(const std::optional<MemoryErrors>& errors) {
  constexpr double kLeast = 0.01;  // memory outside the allocator has an error, too
  return errors ? std::max(kLeast, errors->reserved) : kLeast;
}

Result<std::vector<EngineStep>> engine_steps(EngineKind engine, const PlanConfig& config,
                                             const Meta& meta, const EngineMachine& machine) {
  try {
    std::vector<EngineStep> stages;
    for (std::int64_t stage = 0; stage < config.mesh.size(Axis::pp); ++stage) {
      EngineStep& step = stages.emplace_back(EngineStep{
          .engine = engine,
          .plan =
              engine_plan_of(engine, config, meta, machine.gpu.l2.value, machine.options, stage),
          .memory = {},
          .settings = machine.settings,
          .outside = {},
          .room = {},
          .errors = machine.errors});
      step.outside = pytorch_process(engine, config, machine.gpu.collective_sms).total() +
                     Bytes(step.plan.outside);
      count_memory(step, machine);
    }
    return stages;
  } catch (const OverflowError& error) {
    return fail("plan", std::string("its sizes are too large: ") + error.what());
  }
}

Footprint footprint(const EngineStep& step) {
  const AllocatorCounters& counters = step.memory.counters;
  return {.allocated = step.outside + Bytes(counters.peak_reserved),
          .least = step.outside + Bytes(counters.peak_allocated)};
}

std::size_t fullest_stage(const std::vector<EngineStep>& stages) {
  const auto need = [](const EngineStep& step) {
    return std::pair(!step.fits, footprint(step).allocated);
  };
  return static_cast<std::size_t>(std::ranges::max_element(stages, {}, need) - stages.begin());
}

std::vector<Issuing> issuing_of(const std::vector<EngineStep>& stages, const Gpu& gpu) {
  std::vector<Issuing> all;
  for (const EngineStep& step : stages)
    all.push_back({.time = host_time(step, gpu), .leaves_sms = step.plan.leaves_sms});
  return all;
}

IssueTime host_time(const EngineStep& step, const Gpu& gpu) {
  return [&host = step.plan.host, launch = gpu.host_launch.value](const Op& op) {
    const Int128 time = static_cast<Int128>(host[op.id.value]) * launch / kLaunch;
    return Nanos(checked_narrow(time));
  };
}

void complete(PredictedRun& run, const std::vector<EngineStep>& stages, const Gpu& gpu) {
  const EngineStep& step = stages[fullest_stage(stages)];
  for (std::size_t c = 0; c < run.classes.size(); ++c) {
    run.classes[c].allocated = footprint(stages[c]).allocated;
    run.classes[c].peak = Bytes(stages[c].memory.counters.peak_allocated);
  }
  const AllocatorCounters& counters = step.memory.counters;
  MemorySummary& memory = run.memory;
  run.engine = stored_name(step.engine);
  run.facts.push_back(
      {.topic = "cluster", .name = "host_launch_ns", .value = gpu.host_launch.value});
  memory.allocated = Bytes(counters.peak_allocated);
  memory.cached = CachedMemory{.reserved = Bytes(counters.peak_reserved),
                               .device = footprint(step).allocated,
                               .retries = counters.retries,
                               .certain = step.certain,
                               .fits_certain = {},
                               .errors = step.errors};
  if (step.errors) memory.cached->fits_certain = step.fits && step.certain;
  memory.headroom = step.room - memory.cached->reserved;
  memory.fits = step.fits;
  run.plan.padding = bytes_of(step.plan.padding, run.config.param_dtype);
  memory.categories = step.memory.at_peak;
  memory.peak = memory.allocated;
  run.live_peak = memory.allocated;
  run.peak_op = step.memory.peak_op;
  run.peak_place.reset();
  if (const Plan* plan = step.plan.program.find_plan(PlanRole::train))
    run.peak_place = place_of_op(step.plan.program, *plan, run.peak_op);
}

}  // namespace mfsdp
