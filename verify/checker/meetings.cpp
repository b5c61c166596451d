// Whether all classes of a job reach the end of a plan. A stream runs its ops in order. A send and
// the recv that takes its message wait for each other, and those of one launch begin together. The
// order in which classes are looked at does not matter: each op that can begin will, whatever else
// does. So it is enough to follow one order.
#include <array>
#include <deque>
#include <set>

#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {
namespace {

/// One class. Each stream has a queue of what the host has issued and the stream has not run.
class Class {
 public:
  Class(const PlanView& view, const Plan& plan)
      : view_(view), plan_(plan), streams_(view.json.at("streams").size()) {}

  [[nodiscard]] bool ended() const {
    return issued_ == plan_.size() &&
           std::ranges::all_of(streams_, [](const auto& queue) { return queue.empty(); });
  }
  [[nodiscard]] const Op& next() const {
    for (const auto& queue : streams_)
      if (!queue.empty()) return *plan_[queue.front().first].op;
    return *plan_.at(issued_).op;
  }

  /// The sends and the recvs that have begun on each route.
  using Sides = std::map<Route, std::array<std::vector<const Op*>, 2>>;

  /// Runs all that can begin; whether there was any.
  bool go_on(Sides& sides) {
    bool moved = false;
    for (bool again = true; again; moved = moved || again) {
      again = issue();
      for (auto& queue : streams_)
        while (!queue.empty() && run(queue.front(), sides)) {
          queue.pop_front();
          again = true;
        }
    }
    return moved;
  }

 private:
  struct Transfer {
    Route route;
    Index side = 0, number = 0;
  };
  /// An op, or the ops of a launch, as [first, end) of the plan.
  struct Launch {
    Index first = 0, end = 0;
    Int record = 0;                     ///< of a record or a wait: which one of its event
    Index communicator = kNone;         ///< of a collective or a group
    Int before = 0;                     ///< launches of that communicator before it
    std::vector<Transfer> transfers{};  ///< once it has begun
    bool begun = false;
  };

  /// Has the host issue until it waits.
  bool issue() {
    bool moved = false;
    for (; issued_ < plan_.size(); moved = true) {
      const Op& op = *plan_[issued_].op;
      if (op.kind == "host_wait" && !has_run(op.event, recorded_[op.event])) break;
      if (op.kind == "copy" && view_.port_of(op) != nullptr && !is_free(issued_)) break;
      const Index first = issued_++;
      if (op.kind == "host_wait") continue;
      if (op.kind == "record") ++recorded_[op.event];
      if (op.kind == "group_begin")
        for (Int open = 1; open > 0 && issued_ < plan_.size(); ++issued_) {
          const std::string& kind = plan_[issued_].op->kind;
          open += kind == "group_begin" ? 1 : kind == "group_end" ? -1 : 0;
        }
      Launch launch{.first = first, .end = issued_};
      if (op.event != kNone) launch.record = recorded_[op.event];
      if (op.kind == "collective" || op.kind == "group_begin") {
        launch.communicator = view_.at("communicators", *op.body, "communicator");
        launch.before = launches_[launch.communicator]++;
      }
      streams_[op.stream].push_back(std::move(launch));
    }
    return moved;
  }
  /// Whether the last run of a copy of a port has ended: the next record on its stream shows it.
  [[nodiscard]] bool is_free(Index copy) {
    const Op& op = *plan_[copy].op;
    for (Index i = copy; i < plan_.size(); ++i)
      if (const Op& other = *plan_[i].op; other.kind == "record" && other.stream == op.stream)
        return has_run(other.event, recorded_[other.event]);
    return true;
  }
  [[nodiscard]] bool has_run(Index event, Int record) {
    return record == 0 || ran_[event].contains(record);
  }

  /// Whether a launch has ended. NCCL begins those of a communicator one after the other.
  bool run(Launch& launch, Sides& sides) {
    const Op& op = *plan_[launch.first].op;
    if (op.kind == "wait") return has_run(op.event, launch.record);
    if (op.kind == "record") ran_[op.event].insert(launch.record);
    if (launch.communicator == kNone) return true;
    if (ended_[launch.communicator] < launch.before) return false;
    for (Index i = launch.first; i < launch.end && !launch.begun; ++i) {
      const Op& part = *plan_[i].op;
      if (!is_transfer(part)) continue;
      const Route route = route_of(view_, part);
      const Index side = part.does == "send" ? 0 : 1;
      launch.transfers.push_back({route, side, sides[route][side].size()});
      sides[route][side].push_back(&part);
    }
    launch.begun = true;
    const bool met = std::ranges::all_of(launch.transfers, [&](const Transfer& transfer) {
      return sides[transfer.route][1 - transfer.side].size() > transfer.number;
    });
    if (met) ++ended_[launch.communicator];
    return met;
  }

  const PlanView& view_;
  const Plan& plan_;
  std::vector<std::deque<Launch>> streams_;
  Index issued_ = 0;
  std::map<Index, Int> recorded_{};            ///< by event
  std::map<Index, std::set<Int>> ran_{};       ///< likewise, numbers of records
  std::map<Index, Int> launches_{}, ended_{};  ///< by communicator
};

}  // namespace

Route route_of(const PlanView& view, const Op& transfer) {
  const Json& peer = transfer.body->at("peer");
  const Json& axes = view.communicator_of(transfer).at("axes");
  const Int step = peer.at("step");
  const Int stages = view.ranks_on(kStages);
  if (view.classes == 1 || peer.at("axis") != kStages || step == 0 || step < -stages ||
      step > stages || view.stage + step < 0 || view.stage + step >= stages ||
      std::ranges::find(axes, Json(kStages)) == axes.end())
    refuse("{}: its peer is no other stage of its communicator", transfer.place());
  const Index communicator = view.at("communicators", *transfer.body, "communicator");
  const Int other = view.stage + step;
  return transfer.does == "send" ? Route{communicator, view.stage, other}
                                 : Route{communicator, other, view.stage};
}

void check_meetings(const std::deque<PlanView>& views, Index p) {
  std::vector<Class> classes;
  for (const PlanView& view : views) classes.emplace_back(view, view.plans.at(p));
  Class::Sides sides;
  for (bool moved = true; moved;) {
    moved = false;
    for (Class& of : classes) moved = of.go_on(sides) || moved;
  }
  for (const Class& of : classes)
    if (!of.ended()) refuse("{}: waits for another class forever", of.next().place());
  for (const auto& [route, side] : sides) {
    const auto& [sends, recvs] = side;
    for (Index i = 0; i < sends.size(); ++i) {
      const Op& send = *sends[i];
      const Op& recv = *recvs.at(i);
      if (send.body->at("count") != recv.body->at("count") ||
          send.body->at("dtype") != recv.body->at("dtype"))
        refuse("{}: sends what {} does not receive so", send.place(), recv.place());
    }
  }
}

}  // namespace mfsdp::checker
