#include "verify/proof/classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "verify/proof/order/unrolled_plan.hpp"
#include "verify/proof/prove.hpp"
#include "verify/proof/ranks/meetings.hpp"
#include "verify/proof/ranks/rank_sequences.hpp"

namespace mfsdp {
namespace {

/// One class's plan, with its collectives.
struct ClassPlan {
  UnrolledPlan unrolled;
  std::string role;
  std::vector<PlannedMeeting> meetings = {};

  [[nodiscard]] CommunicatorId communicator(const PlannedMeeting& meeting) const {
    return unrolled.program->communicators[meeting.communicator].id;
  }
};

Place place_in(const ClassPlan& plan, std::uint32_t instance) {
  Place place = place_of(plan.unrolled, instance);
  place.stream = plan.role + " " + place.stream;
  return place;
}

void compare_sequences(const ClassPlan& a, const ClassPlan& b, FindingList& findings) {
  std::map<CommunicatorId, std::pair<std::vector<PlannedMeeting>, std::vector<PlannedMeeting>>>
      lists;
  for (const PlannedMeeting& meeting : a.meetings)
    lists[a.communicator(meeting)].first.push_back(meeting);
  for (const PlannedMeeting& meeting : b.meetings)
    lists[b.communicator(meeting)].second.push_back(meeting);
  for (const auto& [communicator, both] : lists) {
    const auto& [in_a, in_b] = both;
    const std::size_t common = std::min(in_a.size(), in_b.size());
    std::size_t at = 0;
    while (at < common && signature_of(a.unrolled, in_a[at]) == signature_of(b.unrolled, in_b[at]))
      ++at;
    if (at == std::max(in_a.size(), in_b.size())) continue;
    Finding finding;
    finding.rule = "MF201";
    const auto describe = [&](const ClassPlan& plan, const std::vector<PlannedMeeting>& list) {
      if (at >= list.size()) return fmt::format("{} issues no further one", plan.role);
      finding.places.push_back(place_in(plan, list[at].instance));
      return fmt::format("{} issues {} ({})", plan.role, to_text(finding.places.back()),
                         to_text(signature_of(plan.unrolled, list[at])));
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
    for (const PlannedMeeting& meeting : plan.meetings) {
      const auto [found, fresh] = meetings_.try_emplace(
          {plan.communicator(meeting), meeting.number}, static_cast<std::uint32_t>(nodes_.size()));
      if (fresh) nodes_.emplace_back(&plan, meeting.instance);
      ids[meeting.instance] = found->second;
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
      if (launched_apart(u, meetings[m - 1], meetings[m]))
        add_edge(ids[meetings[m - 1].instance], ids[meetings[m].instance]);
  }

  const std::vector<ClassPlan>& classes_;
  std::vector<std::pair<const ClassPlan*, std::uint32_t>> nodes_;
  /// By communicator and number on it: node.
  std::map<std::pair<CommunicatorId, std::uint32_t>, std::uint32_t> meetings_;
  std::vector<std::vector<std::uint32_t>> ids_;    // by class and instance: node
  std::vector<std::vector<std::uint32_t>> after_;  // by node
  std::vector<std::uint32_t> awaited_;             // by node: edges into it that are left
};

void find_deadlock(const std::vector<ClassPlan>& classes, FindingList& findings) {
  for (const bool launches_in_order : {false, true}) {
    std::vector<Place> cycle = WaitGraph(classes, launches_in_order).find_cycle();
    if (cycle.empty()) continue;
    return findings.add(deadlock_finding(launches_in_order, std::move(cycle)));
  }
}

ClassPlan class_plan(const Program& program, const ProgramIndex& index, const Plan& plan,
                     const ProofSettings& settings) {
  FindingList ignored(0);  // prove() reports them
  ClassPlan made{.unrolled = unroll(program, index, plan, settings, ignored),
                 .role = program.classes.empty() ? "rank" : program.classes.front().role};
  made.meetings = meetings_of(made.unrolled);
  return made;
}

Result<void> check_class_of(std::span<const Program> classes,
                            std::span<const std::uint32_t> class_of) {
  const Program& first = classes.front();
  for (std::size_t c = 1; c < classes.size(); ++c)
    if (classes[c].config.mesh != first.config.mesh ||
        classes[c].communicators != first.communicators)
      return fail(fmt::format("class {}", c), "expected the mesh and communicators of class 0");
  if (const std::int64_t ranks = first.config.mesh.world_size(); ranks != std::ssize(class_of))
    return fail("classes",
                fmt::format("expected {} ranks as the mesh has, got {}", ranks, class_of.size()));
  for (const std::uint32_t c : class_of)
    if (c >= classes.size())
      return fail("classes", fmt::format("expected {} classes at most, got one of number {}",
                                         classes.size(), c));
  return {};
}

/// Proves each class by itself, then has each plan of the first one compared with those of the same
/// name.
Result<std::vector<Finding>> compare_plans(std::span<const Program> classes,
                                           const ProofSettings& settings, auto compare) {
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
    compare(plans, findings);
  }
  return findings.take();
}

}  // namespace

Result<std::vector<Finding>> compare_classes(std::span<const Program> classes,
                                             const ProofSettings& settings) {
  return compare_plans(classes, settings,
                       [](const std::vector<ClassPlan>& plans, FindingList& findings) {
                         for (std::size_t c = 1; c < plans.size(); ++c)
                           compare_sequences(plans.front(), plans[c], findings);
                         find_deadlock(plans, findings);
                       });
}

Result<std::vector<Finding>> compare_ranks(std::span<const Program> classes,
                                           std::span<const std::uint32_t> class_of,
                                           const ProofSettings& settings) {
  if (!classes.empty()) MFSDP_TRY(check_class_of(classes, class_of));
  return compare_plans(classes, settings,
                       [&](const std::vector<ClassPlan>& plans, FindingList& findings) {
                         std::vector<const UnrolledPlan*> unrolled;
                         for (const ClassPlan& plan : plans) unrolled.push_back(&plan.unrolled);
                         check_every_rank(unrolled, class_of, findings);
                       });
}

}  // namespace mfsdp
