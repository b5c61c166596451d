#include "reports/trace/trace_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/json_text.hpp"
#include "core/plan/index.hpp"
#include "core/plan/instances.hpp"
#include "core/plan/job.hpp"
#include "reports/record/facts.hpp"
#include "reports/trace/replay.hpp"
#include "reports/trace/whole_memory.hpp"
#include "reports/trace/whole_step.hpp"

namespace mfsdp {
namespace {

using FactsByOp = std::unordered_map<OpId, OpWork>;

/// Track numbers by stream: the schedule's streams in their own order, then any others as found.
class TrackNumbers {
 public:
  std::int64_t of(std::string_view stream) {
    if (const auto role = parse<StreamRole>(stream)) return static_cast<std::int64_t>(*role);
    const auto [found, is_new] = others_.emplace(stream, next_);
    if (is_new) ++next_;
    return found->second;
  }

 private:
  std::map<std::string, std::int64_t, std::less<>> others_;
  std::int64_t next_ = std::ssize(Names<StreamRole>::values);
};

/// Viewers draw events of one track that overlap as if one had called the other.
Result<void> check_timeline(const std::vector<OpTime>& timeline) {
  std::map<std::string_view, std::vector<const OpTime*>> streams;
  for (const OpTime& op : timeline) {
    if (op.end < op.start) return fail("timeline: op " + op.name, "ends before it starts");
    streams[op.stream].push_back(&op);
  }
  for (auto& [stream, ops] : streams) {
    std::ranges::stable_sort(ops, {},
                             [](const OpTime* op) { return std::pair(op->start, op->end); });
    // Collectives of one launch run together, from its start to its end. So do sends and receives.
    const auto is_message = [](const OpTime& op) {
      return op.kind == to_string(CollectiveKind::send) ||
             op.kind == to_string(CollectiveKind::recv);
    };
    const auto run_together = [&](const OpTime& a, const OpTime& b) {
      const bool is_one_launch = a.kind == b.kind || (is_message(a) && is_message(b));
      return a.start == b.start && a.end == b.end && is_one_launch;
    };
    for (std::size_t i = 1; i < ops.size(); ++i)
      if (ops[i]->start < ops[i - 1]->end && !run_together(*ops[i], *ops[i - 1]))
        return fail(fmt::format("timeline: stream {}", stream),
                    fmt::format("op {} starts at {} ns, before op {} ends at {} ns", ops[i]->name,
                                ops[i]->start.value, ops[i - 1]->name, ops[i - 1]->end.value));
  }
  return {};
}

std::string facts_text(const FactsByOp& facts, OpId op) {
  const auto found = facts.find(op);
  if (found == facts.end()) return "";
  return fmt::format(",\"bytes\":{},\"flops\":{}", found->second.bytes, found->second.flops);
}

TraceSlice slice_of(const TimedOp& timed, const FactsByOp& facts) {
  const OpTime& op = *timed.op;
  return {
      .op = op.op,
      .name = op.name,
      .kind = op.kind,
      .start = timed.start,
      .end = timed.end,
      .args = fmt::format(R"({{"op":{},"segment":{},"instance":{},"kind":{}{}{}}})", op.op.value,
                          json_literal(op.segment), timed.instance, json_literal(op.kind),
                          timed.omitted ? ",\"omitted\":true" : "", facts_text(facts, op.op))};
}

TraceProcess process_of(const RunResult& run, std::span<const TimedOp> whole,
                        const FactsByOp& facts, TrackNumbers& numbers) {
  const std::string name = run.name.empty() ? run.run_id : run.name;
  TraceProcess process{.name = fmt::format("{}: {} on {} x {}", name, run.model_name,
                                           run.cluster.gpus, run.cluster.gpu),
                       .number = 1};
  std::map<std::int64_t, TraceTrack> tracks;
  for (const TimedOp& timed : whole) {
    TraceTrack& track = tracks[numbers.of(timed.op->stream)];
    track.name = timed.op->stream;
    track.slices.push_back(slice_of(timed, facts));
  }
  for (auto& [number, track] : tracks) {
    track.number = number;
    std::ranges::stable_sort(track.slices, {}, [](const TraceSlice& slice) {
      return std::pair(slice.start, slice.end);
    });
    process.tracks.push_back(std::move(track));
  }
  return process;
}

/// The last nanosecond of a slice, as viewers ask which slice an arrow's time lies in.
Nanos last_of(Nanos start, Nanos end) { return end > start ? end - Nanos(1) : start; }

TraceModel model_of_step(const RunResult& run, const Program* program) {
  TraceModel model;
  TrackNumbers numbers;
  const Plan* plan = program != nullptr ? program->find_plan(PlanRole::train) : nullptr;
  const std::vector<TimedOp> whole = whole_step(run);
  const FactsByOp facts = plan != nullptr ? op_facts(*program, *plan) : FactsByOp();
  model.processes.push_back(process_of(run, whole, facts, numbers));
  if (const Predicted* predicted = run.predicted()) model.memory = predicted->memory_timeline;
  for (const ClassReport& one : run.classes())
    if (one.fullest && !one.busiest) model.memory_of = one.role;
  if (plan == nullptr) return model;
  const Replay replayed = replay(*program, *plan, whole, end_of_step(run));
  for (const WaitEdge& wait : replayed.waits) {
    const TimedOp& from = whole[wait.awaited];
    const TimedOp& to = whole[wait.waiter];
    model.arrows.push_back({.process = 1,
                            .from_track = numbers.of(from.op->stream),
                            .from = last_of(from.start, from.end),
                            .to_track = numbers.of(to.op->stream),
                            .to = to.start});
  }
  if (!model.memory.empty() && model.memory_of.empty() &&
      std::ranges::any_of(whole, &TimedOp::omitted))
    model.memory = whole_memory(*program, replayed, model.memory, end_of_step(run));
  return model;
}

/// Facts about a launched op.
struct LaunchedOp {
  std::string name;
  std::string kind;
  std::string stream;
};

std::string kind_of(const Op& op) {
  if (const auto* kernel = std::get_if<Kernel>(&op.body))
    return std::string(to_string(kernel->kind));
  if (const auto* collective = std::get_if<Collective>(&op.body))
    return std::string(to_string(collective->kind));
  return std::string(to_string(std::get<Copy>(op.body).kind));
}

/// Ops that take time, from the plan or, without it, from the timeline.
std::unordered_map<OpId, LaunchedOp> launched_ops(const std::vector<OpTime>& timeline,
                                                  const Program* program) {
  std::unordered_map<OpId, LaunchedOp> ops;
  for (const OpTime& op : timeline)
    ops.try_emplace(op.op, LaunchedOp{.name = op.name, .kind = op.kind, .stream = op.stream});
  const Plan* plan = program != nullptr ? program->find_plan(PlanRole::train) : nullptr;
  if (plan == nullptr) return ops;
  const IdIndex<StreamId> streams(program->streams);
  for (const Op& op : ops_of(*plan)) {
    const OpKind kind = op.kind();
    const auto stream = streams.find(op.stream);
    if (!stream || (kind != OpKind::kernel && kind != OpKind::collective && kind != OpKind::copy))
      continue;
    ops.try_emplace(op.id,
                    LaunchedOp{.name = op.name,
                               .kind = kind_of(op),
                               .stream = std::string(to_string(program->streams[*stream].role))});
  }
  return ops;
}

/// Slices of a stream on as few tracks as they need to lie apart: most have one.
std::vector<std::vector<TraceSlice>> apart(std::vector<TraceSlice> slices) {
  std::ranges::stable_sort(
      slices, {}, [](const TraceSlice& slice) { return std::pair(slice.start, slice.end); });
  std::vector<std::vector<TraceSlice>> lanes;
  for (TraceSlice& slice : slices) {
    const auto free = std::ranges::find_if(
        lanes, [&](const auto& lane) { return lane.back().end <= slice.start; });
    if (free != lanes.end())
      free->push_back(std::move(slice));
    else
      lanes.emplace_back().push_back(std::move(slice));
  }
  return lanes;
}

TraceProcess rank_process(std::int64_t rank, std::map<std::string, std::vector<TraceSlice>> streams,
                          TrackNumbers& numbers) {
  constexpr std::int64_t kLanes = 100;  // more tracks of one stream than any clock's error makes
  TraceProcess process{.name = fmt::format("rank {}", rank), .number = rank + 1, .tracks = {}};
  for (auto& [stream, slices] : streams) {
    std::int64_t lane = 0;
    for (auto& part : apart(std::move(slices))) {
      process.tracks.push_back(
          {.name = lane == 0 ? stream : fmt::format("{}, overlapping {}", stream, lane),
           .number = numbers.of(stream) * kLanes + lane,
           .slices = std::move(part)});
      ++lane;
    }
  }
  std::ranges::sort(process.tracks, {}, &TraceTrack::number);
  return process;
}

/// Arrows of one rank: to each launch from the last ones that ended before it of what it awaits.
void add_launch_arrows(const TraceProcess& process, const FactsByOp& facts,
                       std::vector<TraceArrow>& arrows) {
  struct Ended {
    Nanos end;
    Nanos last;
    std::int64_t track = 0;
  };
  std::unordered_map<OpId, std::vector<Ended>> launches;
  for (const TraceTrack& track : process.tracks)
    for (const TraceSlice& slice : track.slices)
      launches[slice.op].push_back(
          {.end = slice.end, .last = last_of(slice.start, slice.end), .track = track.number});
  for (auto& [op, list] : launches) std::ranges::sort(list, {}, &Ended::end);
  for (const TraceTrack& track : process.tracks)
    for (const TraceSlice& slice : track.slices) {
      const auto work = facts.find(slice.op);
      if (work == facts.end()) continue;
      for (const OpId awaited : work->second.waits) {
        const std::vector<Ended>& list = launches[awaited];
        const auto after = std::ranges::upper_bound(list, slice.start, {}, &Ended::end);
        if (after == list.begin()) continue;
        const Ended& from = *std::prev(after);
        if (from.track != track.number)
          arrows.push_back({.process = process.number,
                            .from_track = from.track,
                            .from = from.last,
                            .to_track = track.number,
                            .to = slice.start});
      }
    }
}

/// The known facts about ops of one class of ranks.
struct ClassOps {
  std::unordered_map<OpId, LaunchedOp> ops;
  FactsByOp facts;
};

/// Each class numbers its ops from 0: the timeline, of one rank, names those of that rank's class.
class OpsOfRanks {
 public:
  OpsOfRanks(const RunResult& run, const Program* program, std::span<const Program> job) {
    if (job.size() > 1) {
      class_of_ = class_of_ranks(job);
      for (const Program& one : job) add({}, &one);
      return;
    }
    add(run.timeline, program);
    const Fact* rank = run.classes().empty() ? nullptr : find_fact(run.facts, "measured", "rank");
    if (rank != nullptr) alone_ = std::get<std::int64_t>(rank->value);
  }

  /// Null where they are not known.
  [[nodiscard]] const ClassOps* of(std::int64_t rank) const {
    if (alone_ && *alone_ != rank) return nullptr;
    return class_of_.empty() ? &classes_[0]
                             : &classes_[class_of_.at(static_cast<std::size_t>(rank))];
  }

 private:
  void add(const std::vector<OpTime>& timeline, const Program* program) {
    const Plan* plan = program != nullptr ? program->find_plan(PlanRole::train) : nullptr;
    classes_.push_back({.ops = launched_ops(timeline, program),
                        .facts = plan != nullptr ? op_facts(*program, *plan) : FactsByOp()});
  }

  std::vector<ClassOps> classes_;
  std::vector<std::uint32_t> class_of_;  ///< by rank; empty: all are of one
  std::optional<std::int64_t> alone_;    ///< the only rank whose ops are known
};

TraceModel model_of_launches(const RunResult& run, const std::vector<OpLaunch>& launches,
                             const Program* program, std::span<const Program> job) {
  const OpsOfRanks known(run, program, job);
  std::map<std::int64_t, std::map<std::string, std::vector<TraceSlice>>> ranks;
  for (const OpLaunch& launch : launches) {
    const ClassOps* of_class = known.of(launch.rank);
    if (of_class == nullptr) continue;
    const auto op = of_class->ops.find(launch.op);
    if (op == of_class->ops.end() || launch.end < launch.begin) continue;
    ranks[launch.rank][op->second.stream].push_back(
        {.op = launch.op,
         .name = op->second.name,
         .kind = op->second.kind,
         .start = launch.begin,
         .end = launch.end,
         .args = fmt::format(R"({{"op":{},"step":{},"kind":{},"issued_ns":{}{}}})", launch.op.value,
                             launch.step, json_literal(op->second.kind), launch.issued.value,
                             facts_text(of_class->facts, launch.op))});
  }
  TraceModel model;
  TrackNumbers numbers;
  for (auto& [rank, streams] : ranks)
    model.processes.push_back(rank_process(rank, std::move(streams), numbers));
  for (const TraceProcess& process : model.processes)
    add_launch_arrows(process, known.of(process.number - 1)->facts, model.arrows);
  return model;
}

}  // namespace

Result<TraceModel> trace_model(const RunResult& run, const Program* program,
                               std::span<const Program> job) {
  MFSDP_TRY(check_timeline(run.timeline));
  if (const Measured* measured = run.measured()) {
    TraceModel model = model_of_launches(run, measured->launches, program, job);
    if (!model.processes.empty()) return model;
  }
  return model_of_step(run, program);
}

}  // namespace mfsdp
