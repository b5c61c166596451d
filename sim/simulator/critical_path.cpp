#include "sim/simulator/critical_path.hpp"

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dag_shortest_paths.hpp>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "core/plan/rotation.hpp"
#include "sim/simulator/op_names.hpp"
#include "sim/simulator/plan_ids.hpp"

namespace mfsdp {
namespace {

// Boost finds shortest paths: the weight of an edge is minus the duration of its source op.
using Weight = boost::property<boost::edge_weight_t, std::int64_t>;
using OpGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, Weight>;
using Vertex = boost::graph_traits<OpGraph>::vertex_descriptor;

/// Limit of the graph's size, for one step, ops without duration included.
constexpr std::int64_t kMostInstances = 8 * kMostSpans;

struct Instance {
  std::uint32_t segment = 0;
  std::uint32_t op = 0;
  std::int64_t instance = 0;
  std::int64_t begun = 0;  ///< microbatches of the step (core/plan/rotation.hpp)
  std::int64_t start = 0;  ///< relative to the step's; of ops that take time
  std::int64_t duration = 0;
};

/// Op instances of one step in host order. Repeated segments have at most `repeats` instances.
std::vector<Instance> instances_of(const Plan& plan, std::int64_t repeats,
                                   const std::vector<OpSpan>& spans) {
  std::vector<Instance> instances;
  std::vector<std::size_t> begins;
  std::int64_t begun = 0;
  for (std::uint32_t s = 0; s < plan.segments.size(); ++s) {
    begins.push_back(instances.size());
    if (plan.segments[s].ops.empty()) continue;
    for (std::int64_t k = 0; k < std::min(plan.segments[s].repeat, repeats); ++k) {
      begun += plan.segments[s].microbatches;
      for (std::uint32_t i = 0; i < plan.segments[s].ops.size(); ++i)
        instances.push_back({.segment = s, .op = i, .instance = k, .begun = begun});
    }
  }
  for (const OpSpan& span : spans) {
    if (span.instance >= repeats) continue;
    const std::size_t length = plan.segments[span.segment].ops.size();
    const std::size_t at =
        begins[span.segment] + static_cast<std::size_t>(span.instance) * length + span.op;
    instances[at].start = span.start.value;
    instances[at].duration = (span.end - span.start).value;
  }
  return instances;
}

/// Visits the instances in host order and adds the edges from their predecessors.
class GraphBuilder {
 public:
  /// `graph` has two more vertices than instances.
  GraphBuilder(const Program& program, const Plan& plan, std::vector<Instance>& instances,
               OpGraph& graph)
      : plan_(plan),
        instances_(instances),
        ids_(program),
        graph_(graph),
        stream_(program.streams.size()),
        communicator_(program.communicators.size()),
        record_(program.events.size()) {
    for (std::size_t event = 0; event < record_.size(); ++event)
      record_[event].resize(static_cast<std::size_t>(program.events[event].instances.value_or(1)));
  }

  /// Vertex i is instance i; the last two are the source, before all, and the sink, after all.
  void build() {
    const Vertex source = instances_.size();
    for (Vertex v = 0; v < instances_.size(); ++v) {
      follow(source, v);
      visit(v);
      follow(v, source + 1);
    }
  }

 private:
  void follow(std::optional<Vertex> from, Vertex to) {
    if (!from) return;
    const std::int64_t weight = *from < instances_.size() ? -instances_[*from].duration : 0;
    boost::add_edge(*from, to, Weight(weight), graph_);
  }

  void visit(Vertex v) {
    const Op& op = plan_.segments[instances_[v].segment].ops[instances_[v].op];
    if (const auto* wait = std::get_if<HostWait>(&op.body)) {
      follow(record_of(wait->event, op, v), v);
      follow(host_, v);
      host_ = v;
      told_.clear();
      return;
    }
    const std::uint32_t stream = ids_.streams[op.stream];
    follow(stream_[stream], v);
    stream_[stream] = v;
    if (told_.insert(stream).second) follow(host_, v);
    if (const auto* record = std::get_if<Record>(&op.body)) {
      record_of(record->event, op, v) = v;
    } else if (const auto* wait = std::get_if<Wait>(&op.body)) {
      follow(record_of(wait->event, op, v), v);
    } else if (std::holds_alternative<GroupBegin>(op.body)) {
      grouped_[stream] = false;
    } else if (std::holds_alternative<GroupEnd>(op.body)) {
      grouped_.erase(stream);
    } else if (const auto* collective = std::get_if<Collective>(&op.body)) {
      const std::uint32_t communicator = ids_.communicators[collective->communicator];
      follow(communicator_[communicator], v);
      communicator_[communicator] = v;
      count_group_once(stream, v);
    }
  }

  /// The latest record of the event's instance that the op at `v` uses.
  std::optional<Vertex>& record_of(EventId event, const Op& op, Vertex v) {
    auto& all = record_[ids_.events[event]];
    return all[static_cast<std::size_t>(instance_of(instances_[v].begun, op.lag, std::ssize(all)))];
  }

  /// All members of a group have the duration of its one launch; only the first one keeps it.
  void count_group_once(std::uint32_t stream, Vertex v) {
    const auto group = grouped_.find(stream);
    if (group == grouped_.end()) return;
    if (group->second) instances_[v].duration = 0;
    group->second = true;
  }

  const Plan& plan_;
  std::vector<Instance>& instances_;
  PlanIds ids_;
  OpGraph& graph_;
  // The latest instance of each kind of order:
  std::vector<std::optional<Vertex>> stream_;
  std::vector<std::optional<Vertex>> communicator_;
  std::vector<std::vector<std::optional<Vertex>>> record_;  // by event and instance
  std::optional<Vertex> host_;
  std::set<std::uint32_t> told_;           // streams with an op after the latest host wait
  std::map<std::uint32_t, bool> grouped_;  // streams in a group: whether a member was seen
};

std::vector<PathShare> shares_of(const std::vector<CriticalOp>& ops,
                                 const std::string CriticalOp::* name) {
  std::map<std::string, Nanos> sums;
  for (const CriticalOp& op : ops) sums[op.*name] += op.duration;
  std::vector<PathShare> shares;
  for (const auto& [key, time] : sums) shares.push_back({.name = key, .time = time});
  std::ranges::stable_sort(shares, std::greater{}, &PathShare::time);
  return shares;
}

CriticalOp describe(const Program& program, const Plan& plan, const PlanIds& ids,
                    const Instance& instance) {
  const Segment& segment = plan.segments[instance.segment];
  const Op& op = segment.ops[instance.op];
  CriticalOp result;
  result.op = op.id;
  result.name = op.name;
  result.unit = op.unit ? program.units[ids.units[*op.unit]].name : std::string(kNoUnit);
  result.kind = kind_name(op);
  result.segment = segment.name;
  result.instance = instance.instance;
  result.duration = Nanos(instance.duration);
  return result;
}

/// Whether the simulation kept the times of all instances, and the graph is not too large.
bool can_unroll(const Plan& plan) {
  std::int64_t spans = 0;
  std::int64_t ops = 0;
  for (const Segment& segment : plan.segments) {
    const auto timed = std::ranges::count_if(segment.ops, takes_time);
    spans = checked_add(spans, checked_mul(timed, segment.repeat));
    ops = checked_add(ops, checked_mul(std::ssize(segment.ops), segment.repeat));
  }
  return spans <= kMostSpans && ops <= kMostInstances;
}

}  // namespace

CriticalPath critical_path(const Program& program, const Plan& plan, const Simulation& simulation) {
  CriticalPath path;
  path.abridged = !can_unroll(plan);
  const std::int64_t repeats = path.abridged ? 2 : std::numeric_limits<std::int64_t>::max();
  std::vector<Instance> instances = instances_of(plan, repeats, simulation.spans);
  OpGraph graph(instances.size() + 2);
  GraphBuilder(program, plan, instances, graph).build();

  const Vertex source = instances.size();
  const Vertex sink = source + 1;
  std::vector<Vertex> before(instances.size() + 2);
  std::vector<std::int64_t> distance(instances.size() + 2);
  boost::dag_shortest_paths(graph, source,
                            boost::predecessor_map(before.data()).distance_map(distance.data()));

  const PlanIds ids(program);
  if (!instances.empty()) {
    path.length = Nanos(-distance[sink]);
    for (Vertex v = before[sink]; v != source; v = before[v]) {
      const Instance& instance = instances[v];
      if (!takes_time(plan.segments[instance.segment].ops[instance.op])) continue;
      path.ops.push_back(describe(program, plan, ids, instance));
      path.before_step += Nanos(std::clamp<std::int64_t>(-instance.start, 0, instance.duration));
    }
  }
  std::ranges::reverse(path.ops);
  path.by_unit = shares_of(path.ops, &CriticalOp::unit);
  path.by_kind = shares_of(path.ops, &CriticalOp::kind);
  if (!path.by_unit.empty()) path.bounding_unit = path.by_unit.front().name;
  return path;
}

}  // namespace mfsdp
