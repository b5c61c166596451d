#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "sim/simulator/engine.hpp"
#include "sim/simulator/op_names.hpp"
#include "sim/simulator/simulation.hpp"

namespace mfsdp {
namespace {

/// Whether an all-to-all carries gradients to be summed, as part of a reduce-scatter.
bool deals_gradients(const Program& program, const PlanIds& ids, const Collective& collective) {
  if (collective.kind != CollectiveKind::all_to_all) return false;
  const auto& holds = program.buffers[ids.buffers[collective.output.buffer]].holds;
  return holds && holds->kind == ContentKind::gradient;
}

/// Bytes that one rank sends for all collectives of a step: (n - 1) / n of the full bytes; twice
/// that for all_reduce, which is a reduce_scatter and an all_gather; all bytes of a send.
TrafficSummary traffic_of(const Program& program, const Plan& plan, const PlanIds& ids) {
  TrafficSummary traffic;
  for (const Segment& segment : plan.segments)
    for (const Op& op : segment.ops) {
      const auto* collective = std::get_if<Collective>(&op.body);
      if (collective == nullptr || segment.repeat == 0) continue;
      const std::int64_t ranks =
          program.communicators[ids.communicators[collective->communicator]].size;
      const Bytes bytes = bytes_of(collective->count, collective->dtype);
      switch (collective->kind) {
        case CollectiveKind::all_gather:  // count is what each rank sends
        case CollectiveKind::all_to_all:  // and here what it sends to each other rank
          (deals_gradients(program, ids, *collective) ? traffic.reduce_scatter
                                                      : traffic.all_gather) +=
              bytes * (ranks - 1) * segment.repeat;
          break;
        case CollectiveKind::reduce_scatter:  // count is what each rank receives
          traffic.reduce_scatter += bytes * (ranks - 1) * segment.repeat;
          break;
        case CollectiveKind::all_reduce: {
          const Int128 sent = static_cast<Int128>(bytes.value) * 2 * (ranks - 1) / ranks;
          traffic.all_reduce += Bytes(checked_narrow(sent)) * segment.repeat;
          break;
        }
        case CollectiveKind::shift:
        case CollectiveKind::send: traffic.sends += bytes * segment.repeat; break;
        case CollectiveKind::recv: break;  // its peer sends
      }
    }
  return traffic;
}

TimeSummary time_of(const StepRecord& record, const LoweredPlan& lowered) {
  TimeSummary time;
  time.step = time.median_step = Nanos(record.end - record.begin);
  time.compute = Nanos(record.compute);
  time.communication = Nanos(record.communication);
  time.exposed_communication = Nanos(record.exposed);
  time.idle = time.step - time.compute - time.exposed_communication;
  time.contention = Nanos(checked_narrow(record.lost / kOne));
  if (lowered.host_length > 0)
    time.host = HostTime{.issue = Nanos(lowered.host_length), .bound = Nanos(record.host_bound)};
  time.overlap_fraction =
      record.communication == 0
          ? 1.0
          : 1.0 - static_cast<double>(record.exposed) / static_cast<double>(record.communication);
  return time;
}

std::vector<OpTime> timeline_of(const Program& program, const Plan& plan, const PlanIds& ids,
                                std::span<const OpSpan> spans) {
  std::vector<OpTime> timeline;
  timeline.reserve(spans.size());
  for (const OpSpan& span : spans) {
    const Segment& segment = plan.segments[span.segment];
    const Op& op = segment.ops[span.op];
    OpTime time;
    time.op = op.id;
    time.name = op.name;
    time.stream = to_string(program.streams[ids.streams[op.stream]].role);
    time.kind = kind_name(op);
    time.segment = segment.name;
    time.instance = span.instance;
    time.start = span.start;
    time.end = span.end;
    timeline.push_back(std::move(time));
  }
  return timeline;
}

/// Segments whose later instances were not kept: their mean period follows from the begin of the
/// next segment.
std::vector<OmittedInstances> omitted_of(const Plan& plan, std::span<const OpSpan> spans) {
  struct Seen {
    std::int64_t instances = 0;
    std::optional<Nanos> begin;  ///< of instance 0
    std::optional<Nanos> last;   ///< of the last instance that was kept
  };
  std::vector<Seen> seen(plan.segments.size() + 1);
  for (const OpSpan& span : spans) {
    Seen& segment = seen[span.segment];
    if (span.instance >= segment.instances) {
      segment.instances = span.instance + 1;
      segment.last.reset();
    }
    if (span.instance == 0 && !segment.begin) segment.begin = span.start;
    if (span.instance + 1 == segment.instances && !segment.last) segment.last = span.start;
  }
  std::vector<OmittedInstances> omitted;
  for (std::size_t i = 0; i < plan.segments.size(); ++i) {
    const std::int64_t left_out = plan.segments[i].repeat - seen[i].instances;
    if (left_out <= 0 || !seen[i].last) continue;
    const Nanos next = seen[i + 1].begin.value_or(*seen[i].last);
    const Nanos period((next - *seen[i].last).value / (left_out + 1));
    omitted.push_back({.segment = plan.segments[i].name,
                       .first = seen[i].instances,
                       .count = left_out,
                       .begin = *seen[i].last + period,
                       .period = period});
  }
  return omitted;
}

std::vector<ExposedUnit> exposed_of(const Program& program, const StepRecord& record) {
  std::vector<ExposedUnit> exposed;
  for (std::size_t unit = 0; unit < record.exposed_by_unit.size(); ++unit) {
    const ExposedTimes& times = record.exposed_by_unit[unit];
    const std::int64_t all = std::accumulate(times.begin(), times.end(), std::int64_t{0});
    if (all == 0) continue;
    const std::string name =
        unit < program.units.size() ? program.units[unit].name : std::string(kNoUnit);
    const auto most = std::ranges::max_element(times);
    ExposedUnit& added = exposed.emplace_back(ExposedUnit{.unit = name, .exposed = Nanos(all)});
    if (*most > all / 2) added.mostly = static_cast<Awaited>(most - times.begin());
  }
  std::ranges::stable_sort(exposed, std::greater{}, &ExposedUnit::exposed);
  return exposed;
}

/// Time of the rank's kernels without contention.
Nanos compute_alone(const StepRecord& record) {
  return Nanos(record.compute) - Nanos(checked_narrow(record.lost / kOne));
}

/// The position of the representative of a class for which the others wait most.
std::size_t find_critical(Engine& engine, const RankPartition& partition, std::uint32_t of_class) {
  std::optional<std::size_t> critical;
  const auto weight = [&](std::size_t i) {
    return std::pair(engine.waited_for()[i], compute_alone(engine.ranks()[i].record()));
  };
  for (std::size_t i = 0; i < engine.ranks().size(); ++i) {
    if (partition.representatives[i].of_class != of_class) continue;
    if (!critical || weight(i) > weight(*critical)) critical = i;
  }
  return critical.value_or(0);
}

RankSummary summarise_ranks(const RankPartition& partition, Engine& engine, std::size_t reported) {
  RankSummary summary;
  summary.ranks = partition.ranks;
  summary.simulated = std::ssize(partition.representatives);
  summary.reported = partition.representatives[reported].rank;
  summary.waited_for = Nanos(engine.waited_for()[reported]);
  summary.compute_least = Nanos(kNever);
  Int128 compute_sum = 0;
  Int128 waiting_sum = 0;
  for (std::size_t i = 0; i < partition.representatives.size(); ++i) {
    const Representative& one = partition.representatives[i];
    const StepRecord& record = engine.ranks()[i].record();
    const Nanos compute = compute_alone(record);
    compute_sum += static_cast<Int128>(compute.value) * one.ranks;
    waiting_sum += static_cast<Int128>(record.waiting) * one.ranks;
    summary.compute_least = std::min(summary.compute_least, compute);
    summary.waiting_most = std::max(summary.waiting_most, Nanos(record.waiting));
    if (i > 0 && compute <= summary.compute_most) continue;
    summary.compute_most = compute;
    summary.slowest = one.rank;
  }
  summary.compute_mean = Nanos(checked_narrow(compute_sum / partition.ranks));
  summary.waiting_mean = Nanos(checked_narrow(waiting_sum / partition.ranks));
  return summary;
}

/// Converts the rank's absolute times to times relative to its C(1).
void describe(const RankPlan& common, const PlanIds& ids, Rank& rank, Simulation& simulation) {
  const Program& program = common.program;
  const Plan& plan = common.plan;
  StepRecord& record = rank.record();
  const Nanos begin(record.begin);
  for (OpSpan& span : record.spans) {
    span.start -= begin;
    span.end -= begin;
  }
  std::ranges::sort(record.spans, [](const OpSpan& a, const OpSpan& b) {
    return std::tie(a.start, a.segment, a.instance, a.op) <
           std::tie(b.start, b.segment, b.instance, b.op);
  });
  simulation.timeline = timeline_of(program, plan, ids, record.spans);
  simulation.omitted = omitted_of(plan, record.spans);
  simulation.memory_timeline = rank.memory().take_points();
  for (MemoryPoint& point : simulation.memory_timeline) point.at -= begin;
  simulation.exposed_units = exposed_of(program, record);
  simulation.exposed_by_communicator = std::move(record.exposed_by_communicator);
  simulation.spans = std::move(record.spans);
}

/// The position of the first representative of a class.
std::size_t first_of_class(const RankPartition& partition, std::size_t of_class) {
  const auto first =
      std::ranges::find(partition.representatives, of_class, &Representative::of_class);
  return static_cast<std::size_t>(first - partition.representatives.begin());
}

/// A class's plan, ready to run.
Result<RankPlan> rank_plan(const SimulatedPlan& one, const PlanIds& ids) {
  MFSDP_LET(lowered, lower(*one.program, *one.plan, ids, one.prices));
  MFSDP_LET(memory, MemoryLedger::open(*one.program, ids, lowered.live_in));
  return RankPlan{.program = *one.program,
                  .plan = *one.plan,
                  .lowered = std::move(lowered),
                  .memory = std::move(memory)};
}

/// The reported rank is known only at the end, and recording all ranks would take too much memory.
/// So with several ranks, a second run records the reported one.
Result<Simulation> simulate_checked(std::span<const SimulatedPlan> classes,
                                    const RankVariation& variation, const SimulationTerms& terms) {
  std::vector<PlanIds> ids;
  std::vector<RankPlan> plans;
  ids.reserve(classes.size());
  plans.reserve(classes.size());
  for (const SimulatedPlan& one : classes) {
    MFSDP_LET(plan, rank_plan(one, ids.emplace_back(*one.program)));
    plans.push_back(std::move(plan));
  }
  std::vector<ClassOfRanks> of_ranks;
  for (const RankPlan& plan : plans)
    of_ranks.push_back({.program = &plan.program, .channels = plan.lowered.channels});
  MFSDP_LET(partition, partition_ranks(of_ranks, variation));
  std::vector<std::size_t> kept;
  if (partition.representatives.size() == 1 || terms.likely_class)
    for (const std::size_t c : {terms.likely_class.value_or(0), terms.memory_class})
      kept.push_back(first_of_class(partition, c));
  std::optional<Engine> engine(std::in_place, plans, partition, kept);
  MFSDP_TRY(engine->run());

  Simulation simulation;
  std::vector<std::size_t> critical;  // by class
  for (std::uint32_t c = 0; c < plans.size(); ++c) {
    critical.push_back(find_critical(*engine, partition, c));
    simulation.classes.push_back(
        {.time = time_of(engine->ranks()[critical[c]].record(), plans[c].lowered),
         .traffic = traffic_of(plans[c].program, plans[c].plan, ids[c])});
  }
  const auto busiest = std::ranges::min_element(
      simulation.classes, {}, [](const ClassTimes& times) { return times.time.idle; });
  const auto most = static_cast<std::size_t>(busiest - simulation.classes.begin());
  const std::size_t reported = critical[most];
  simulation.reported_class = most;
  simulation.time = busiest->time;
  simulation.traffic = busiest->traffic;
  simulation.ranks = summarise_ranks(partition, *engine, reported);
  if (terms.records && !terms.records(simulation)) return simulation;
  const std::vector<std::size_t> described{reported, critical[terms.memory_class]};
  if (kept != described) {
    engine.emplace(plans, partition, described);
    MFSDP_TRY(engine->run());
  }
  describe(plans[most], ids[most], engine->ranks()[reported], simulation);
  if (const std::size_t c = terms.memory_class; c != most) {
    Simulation of_memory;
    describe(plans[c], ids[c], engine->ranks()[critical[c]], of_memory);
    simulation.memory_timeline = std::move(of_memory.memory_timeline);
    simulation.memory_ops = std::move(of_memory.timeline);
  }
  return simulation;
}

}  // namespace

Result<Simulation> simulate(std::span<const SimulatedPlan> classes, const RankVariation& variation,
                            const SimulationTerms& terms) {
  try {
    return simulate_checked(classes, variation, terms);
  } catch (const OverflowError& error) {
    return fail(classes.front().plan->name,
                fmt::format("times or bytes out of range: {}", error.what()));
  }
}

Result<Simulation> simulate(const Program& program, const Plan& plan, const Prices& prices,
                            const RankVariation& variation) {
  const SimulatedPlan all{.program = &program, .plan = &plan, .prices = prices};
  return simulate(std::span(&all, 1), variation);
}

}  // namespace mfsdp
