#include "verify/proof/classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "verify/proof/structure.hpp"
#include "verify/proof/unrolled_plan.hpp"

namespace mfsdp {
namespace {

/// A collective of a class: which of its communicator.
struct Meeting {
  CommunicatorId communicator;
  std::size_t number = 0;

  friend auto operator<=>(const Meeting&, const Meeting&) = default;
};

/// One class's plan, with the numbers of its collectives.
struct ClassPlan {
  UnrolledPlan unrolled;
  std::string role;
  std::vector<std::pair<std::uint32_t, Meeting>> meetings;  ///< in host order
};

Place place_in(const ClassPlan& plan, std::uint32_t instance) {
  Place place = place_of(plan.unrolled, instance);
  place.stream = plan.role + " " + place.stream;
  return place;
}

const Collective& collective_at(const ClassPlan& plan, std::uint32_t instance) {
  return std::get<Collective>(plan.unrolled.instances[instance].op->body);
}

std::int64_t repeat_at(const ClassPlan& plan, std::uint32_t instance) {
  const Pass& pass = plan.unrolled.passes[plan.unrolled.instances[instance].pass];
  return plan.unrolled.plan->segments[pass.segment].repeat;
}

/// What one rank of a communicator must find equal on all others.
std::string signature(const ClassPlan& plan, std::uint32_t instance) {
  const Collective& c = collective_at(plan, instance);
  return fmt::format("{} of {} {}, reduction {}, {} times a step", to_string(c.kind), c.count,
                     to_string(c.dtype), to_string(c.reduction), repeat_at(plan, instance));
}

void compare_sequences(const ClassPlan& a, const ClassPlan& b, FindingList& findings) {
  std::map<CommunicatorId, std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>> lists;
  for (const auto& [instance, meeting] : a.meetings)
    lists[meeting.communicator].first.push_back(instance);
  for (const auto& [instance, meeting] : b.meetings)
    lists[meeting.communicator].second.push_back(instance);
  for (const auto& [communicator, both] : lists) {
    const auto& [in_a, in_b] = both;
    const std::size_t common = std::min(in_a.size(), in_b.size());
    std::size_t at = 0;
    while (at < common && signature(a, in_a[at]) == signature(b, in_b[at])) ++at;
    if (at == std::max(in_a.size(), in_b.size())) continue;
    Finding finding;
    finding.rule = "MF201";
    const auto describe = [&](const ClassPlan& plan, const std::vector<std::uint32_t>& list) {
      if (at >= list.size()) return fmt::format("{} has no more", plan.role);
      finding.places.push_back(place_in(plan, list[at]));
      return fmt::format("{} issues {} ({})", plan.role, to_text(finding.places.back()),
                         signature(plan, list[at]));
    };
    const std::string left = describe(a, in_a);
    const std::string right = describe(b, in_b);
    finding.message = fmt::format("collective {} of communicator {} differs: {}, {}", at,
                                  communicator.value, left, right);
    finding.interleaving = finding.places;
    findings.add(std::move(finding));
  }
}

/// All classes' instances, with collectives that meet as one node.
class WaitGraph {
 public:
  WaitGraph(const std::vector<ClassPlan>& classes, bool launches_in_order) : classes_(classes) {
    for (const ClassPlan& plan : classes) add_nodes(plan);
    after_.resize(nodes_.size());
    awaited_.assign(nodes_.size(), 0);
    for (std::size_t c = 0; c < classes.size(); ++c) add_edges(c, launches_in_order);
  }

  /// Nodes of a cycle in the order in which they wait for each other, or none.
  [[nodiscard]] std::vector<Place> find_cycle() {
    std::vector<std::uint32_t> ready;
    for (std::uint32_t n = 0; n < nodes_.size(); ++n)
      if (awaited_[n] == 0) ready.push_back(n);
    while (!ready.empty()) {
      const std::uint32_t n = ready.back();
      ready.pop_back();
      for (const std::uint32_t next : after_[n])
        if (--awaited_[next] == 0) ready.push_back(next);
    }
    // Each node that is left follows another one that is left: walk back until one comes again.
    std::vector<std::uint32_t> before(nodes_.size(), kNone);
    for (std::uint32_t n = 0; n < nodes_.size(); ++n)
      if (awaited_[n] > 0)
        for (const std::uint32_t next : after_[n])
          if (awaited_[next] > 0) before[next] = n;
    const auto left = std::ranges::find_if(awaited_, [](auto count) { return count > 0; });
    if (left == awaited_.end()) return {};
    std::vector<char> seen(nodes_.size(), 0);
    auto n = static_cast<std::uint32_t>(left - awaited_.begin());
    while (seen[n] == 0) {
      seen[n] = 1;
      n = before[n];
    }
    std::vector<Place> cycle;
    const std::uint32_t first = n;
    do {
      const auto& [plan, instance] = nodes_[n];
      if (plan->unrolled.instances[instance].op->kind() == OpKind::collective)
        cycle.push_back(place_in(*plan, instance));
      n = before[n];
    } while (n != first);
    std::ranges::reverse(cycle);
    return cycle;
  }

 private:
  void add_nodes(const ClassPlan& plan) {
    auto& ids = ids_.emplace_back(plan.unrolled.instances.size(), kNone);
    for (const auto& [instance, meeting] : plan.meetings) {
      const auto [found, fresh] =
          meetings_.try_emplace(meeting, static_cast<std::uint32_t>(nodes_.size()));
      if (fresh) nodes_.emplace_back(&plan, instance);
      ids[instance] = found->second;
    }
    for (std::uint32_t i = 0; i < ids.size(); ++i)
      if (ids[i] == kNone) {
        ids[i] = static_cast<std::uint32_t>(nodes_.size());
        nodes_.emplace_back(&plan, i);
      }
  }

  void add_edge(std::uint32_t from, std::uint32_t to) {
    if (from == to) return;
    after_[from].push_back(to);
    ++awaited_[to];
  }

  void add_edges(std::size_t c, bool launches_in_order) {
    const UnrolledPlan& u = classes_[c].unrolled;
    const std::vector<std::uint32_t>& ids = ids_[c];
    // By chain: the instances of its latest position and of the one before, which differ in groups.
    std::vector<std::vector<std::uint32_t>> latest(u.chains);
    std::vector<std::vector<std::uint32_t>> previous(u.chains);
    std::uint32_t host = kNone;
    for (std::uint32_t i = 0; i < ids.size(); ++i) {
      const Instance& instance = u.instances[i];
      auto& now = latest[instance.chain];
      if (!now.empty() && u.instances[now.back()].position != instance.position) {
        previous[instance.chain] = std::move(now);
        now.clear();
      }
      for (const std::uint32_t p : previous[instance.chain]) add_edge(ids[p], ids[i]);
      now.push_back(i);
      const bool same_launch = instance.source != kNone &&
                               u.instances[instance.source].chain == instance.chain &&
                               u.instances[instance.source].position == instance.position;
      if (instance.source != kNone && !same_launch) add_edge(ids[instance.source], ids[i]);
      if (host != kNone) add_edge(ids[host], ids[i]);
      if (instance.chain == u.host_chain()) host = i;
    }
    if (!launches_in_order) return;
    const auto& meetings = classes_[c].meetings;
    for (std::size_t m = 1; m < meetings.size(); ++m)
      if (u.ordered(meetings[m - 1].first, meetings[m].first) ||
          u.instances[meetings[m - 1].first].chain != u.instances[meetings[m].first].chain)
        add_edge(ids[meetings[m - 1].first], ids[meetings[m].first]);
  }

  const std::vector<ClassPlan>& classes_;
  std::vector<std::pair<const ClassPlan*, std::uint32_t>> nodes_;
  std::map<Meeting, std::uint32_t> meetings_;
  std::vector<std::vector<std::uint32_t>> ids_;    // by class and instance: node
  std::vector<std::vector<std::uint32_t>> after_;  // by node
  std::vector<std::uint32_t> awaited_;             // by node: edges into it that are left
};

void find_deadlock(const std::vector<ClassPlan>& classes, FindingList& findings) {
  for (const bool launches_in_order : {false, true}) {
    std::vector<Place> cycle = WaitGraph(classes, launches_in_order).find_cycle();
    if (cycle.empty()) continue;
    Finding finding;
    finding.rule = launches_in_order ? "MF203" : "MF202";
    finding.message = launches_in_order ? "with launches in the host's order, a cycle of waits: "
                                        : "a cycle of waits: ";
    for (const Place& place : cycle) finding.message += to_text(place) + " -> ";
    finding.message += to_text(cycle.front());
    finding.interleaving = cycle;
    finding.places = std::move(cycle);
    findings.add(std::move(finding));
    return;
  }
}

ClassPlan class_plan(const Program& program, const ProgramIndex& index, const Plan& plan,
                     const ProofSettings& settings) {
  FindingList ignored(0);  // prove() has said it
  ClassPlan made{.unrolled = unroll(program, index, plan, settings, ignored),
                 .role = program.classes.empty() ? "rank" : program.classes.front().role,
                 .meetings = {}};
  std::map<CommunicatorId, std::size_t> counts;
  for (std::uint32_t i = 0; i < made.unrolled.instances.size(); ++i)
    if (const auto* c = std::get_if<Collective>(&made.unrolled.instances[i].op->body))
      made.meetings.emplace_back(
          i, Meeting{.communicator = c->communicator, .number = counts[c->communicator]++});
  return made;
}

}  // namespace

Result<std::vector<Finding>> compare_classes(std::span<const Program> classes,
                                             const ProofSettings& settings) {
  if (classes.empty()) return fail("classes", "expected at least one program");
  std::vector<ProgramIndex> indices;
  for (const Program& program : classes) {
    MFSDP_LET(proof, prove(program, settings));
    if (std::ranges::any_of(proof.findings,
                            [](const Finding& finding) { return finding.rule < "MF006"; }))
      return std::vector<Finding>{};
    indices.emplace_back(program);
  }
  FindingList findings(settings.most_findings);
  for (const Plan& plan : classes.front().plans) {
    std::vector<ClassPlan> plans;
    for (std::size_t c = 0; c < classes.size(); ++c) {
      const Plan* own = classes[c].find_plan(plan.name);
      if (own == nullptr)
        return fail(fmt::format("class {}", c), fmt::format("expected a plan '{}'", plan.name));
      plans.push_back(class_plan(classes[c], indices[c], *own, settings));
    }
    for (std::size_t c = 1; c < plans.size(); ++c)
      compare_sequences(plans.front(), plans[c], findings);
    find_deadlock(plans, findings);
  }
  return findings.take();
}

}  // namespace mfsdp
