#include "gpu_backend/tool/measured_step.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/plan/index.hpp"
#include "core/plan/instances.hpp"
#include "core/plan/job.hpp"
#include "reports/record/axis_times.hpp"
#include "sim/simulator/op_names.hpp"

namespace mfsdp {
namespace {

using Span = std::pair<Nanos, Nanos>;

/// Time covered by at least one of the spans.
Nanos covered(std::vector<Span> spans) {
  std::ranges::sort(spans);
  Nanos sum;
  Nanos until;
  for (const auto& [begin, end] : spans) {
    if (end <= until) continue;
    sum += end - std::max(begin, until);
    until = end;
  }
  return sum;
}

/// A begin or end of what runs in a step.
struct Edge {
  Nanos at;
  bool begins = false;
  std::size_t communicator = 0;  ///< position in the program; kCompute: no collective
  Nanos end;                     ///< of what begins or ends
};
constexpr std::size_t kCompute = std::numeric_limits<std::size_t>::max();

/// Time of collectives without compute beside them, by communicator, ns. If several run at once,
/// the one that ends last counts.
std::vector<std::int64_t> exposed_times(std::vector<Edge> edges, std::size_t communicators) {
  std::vector<std::int64_t> times(communicators);
  std::ranges::stable_sort(edges, {}, &Edge::at);        // an op of no length begins first
  std::multiset<std::pair<Nanos, std::size_t>> running;  // collectives by end
  std::int64_t computing = 0;
  Nanos now;
  for (const Edge& edge : edges) {
    if (computing == 0 && !running.empty())
      times[running.rbegin()->second] += (edge.at - now).value;
    now = edge.at;
    const std::pair collective(edge.end, edge.communicator);
    if (edge.communicator == kCompute)
      computing += edge.begins ? 1 : -1;
    else if (edge.begins)
      running.insert(collective);
    else
      running.erase(running.find(collective));
  }
  return times;
}

struct Place {
  const Op* op = nullptr;
  std::string_view list;  ///< the name of its segment or pass
};

/// The plan's ops that take time.
std::unordered_map<OpId, Place> places_of(const Plan& plan) {
  std::unordered_map<OpId, Place> places;
  for (std::size_t l = 0; l < count_op_lists(plan); ++l) {
    const std::size_t segments = plan.segments.size();
    const std::string& name = l < segments ? plan.segments[l].name : plan.passes[l - segments].name;
    for (const Op& op : op_list(plan, l))
      if (takes_time(op)) places.emplace(op.id, Place{.op = &op, .list = name});
  }
  return places;
}

}  // namespace

MeasuredStep measure_step(const Program& program, const Plan& plan,
                          std::span<const OpLaunch> launches) {
  const auto places = places_of(plan);
  const IdIndex<StreamId> streams(program.streams);
  std::vector<const OpLaunch*> ours;
  std::map<std::int64_t, Nanos> ends;  // the end of each step's last op
  for (const OpLaunch& launch : launches)
    if (places.contains(launch.op)) {
      ours.push_back(&launch);
      Nanos& end = ends.try_emplace(launch.step, launch.end).first->second;
      end = std::max(end, launch.end);
    }
  MeasuredStep measured;
  if (ours.empty()) return measured;
  measured.rank = ours.front()->rank;
  const auto recorded = std::prev(ends.end(), ends.size() < 3 ? 1 : 2);
  const Nanos begin = recorded == ends.begin() ? std::ranges::min(ours, {}, &OpLaunch::begin)->begin
                                               : std::prev(recorded)->second;
  const Nanos end = recorded->second;

  std::unordered_map<OpId, std::int64_t> instances;
  const IdIndex<CommunicatorId> communicators(program.communicators);
  std::vector<Edge> edges;
  std::vector<Span> compute;
  std::vector<Span> communication;
  for (const OpLaunch* launch : ours) {
    const auto& [op, list] = places.at(launch->op);
    const StreamRole role = program.streams[streams[op->stream]].role;
    if (launch->step == recorded->first)
      measured.timeline.push_back({.op = op->id,
                                   .name = op->name,
                                   .stream = std::string(to_string(role)),
                                   .kind = std::string(kind_name(*op)),
                                   .segment = std::string(list),
                                   .instance = instances[op->id]++,
                                   .start = launch->begin - begin,
                                   .end = launch->end - begin});
    if (launch->end <= begin || launch->begin >= end) continue;
    const Span span{std::max(launch->begin, begin) - begin, std::min(launch->end, end) - begin};
    const auto* collective = std::get_if<Collective>(&op->body);
    if (role == StreamRole::compute || collective != nullptr) {
      const std::size_t communicator =
          collective == nullptr ? kCompute : communicators[collective->communicator];
      for (const bool begins : {true, false})
        edges.push_back({.at = begins ? span.first : span.second,
                         .begins = begins,
                         .communicator = communicator,
                         .end = span.second});
    }
    if (collective != nullptr) communication.push_back(span);
    if (collective == nullptr && role == StreamRole::compute) compute.push_back(span);
  }
  std::ranges::stable_sort(measured.timeline, {}, &OpTime::start);
  const std::vector<std::int64_t> exposed =
      exposed_times(std::move(edges), program.communicators.size());
  measured.exposed = axis_facts(program, exposed);
  TimeSummary& time = measured.time;
  time.step = end - begin;
  time.compute = covered(compute);
  time.communication = covered(communication);
  time.exposed_communication =
      Nanos(std::accumulate(exposed.begin(), exposed.end(), std::int64_t{0}));
  time.idle = time.step - time.compute - time.exposed_communication;
  time.overlap_fraction = time.communication == Nanos(0)
                              ? 1.0
                              : 1.0 - static_cast<double>(time.exposed_communication.value) /
                                          static_cast<double>(time.communication.value);
  return measured;
}

std::vector<MeasuredStep> slowest_steps(std::span<const Program> programs,
                                        std::span<const std::vector<OpLaunch>> by_rank) {
  std::vector<MeasuredStep> slowest(programs.size());
  const std::vector<std::uint32_t> classes = class_of_ranks(programs);
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const Program& program = programs[classes[rank]];
    MeasuredStep& of_class = slowest[classes[rank]];
    if (MeasuredStep step =
            measure_step(program, *program.find_plan(PlanRole::train), by_rank[rank]);
        step.time.compute > of_class.time.compute || of_class.timeline.empty())
      of_class = std::move(step);
  }
  return slowest;
}

MeasuredStep slowest_step(std::span<const MeasuredStep> of_classes) {
  const auto comes_first = [](const MeasuredStep& a, const MeasuredStep& b) {
    if (a.timeline.empty() != b.timeline.empty()) return b.timeline.empty();
    return std::pair(b.time.compute, a.rank) < std::pair(a.time.compute, b.rank);
  };
  return *std::ranges::min_element(of_classes, comes_first);
}

std::vector<OpLaunch> launches_of(const Program& program, std::int64_t rank,
                                  const std::vector<OpTiming>& timings) {
  std::vector<OpLaunch> launches;
  launches.reserve(timings.size());
  for (const OpTiming& timing : timings) {
    OpLaunch& launch = launches.emplace_back();
    launch.op = timing.op->op->id;
    launch.rank = rank;
    launch.step = timing.step + 1;
    if (timing.stream) launch.stream = program.streams[*timing.stream].id;
    launch.drains = timing.drains;
    launch.issued = timing.issued;
    launch.begin = timing.begin;
    launch.end = timing.end;
  }
  return launches;
}

}  // namespace mfsdp
