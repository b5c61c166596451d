// Races and lifetimes of one plan. verify/proof/order/unrolled_plan.hpp describes the order of ops;
// the rules are those of the design. Here clocks come from the certificate. Each number of a clock
// is accepted only if an earlier instance brings it: on its own stream, on the host, the record of
// its wait, or the collective before it on its communicator. The checker keeps for every byte of a
// pool the buffer that owns it and the accesses that a later one may have to follow: its last write
// and the reads since.
// Acquire and release write all their bytes. An operand counts as all bytes that it spans on all
// ranks: a plan that is right only because the bytes between are free is refused.
#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {
namespace {

/// The latest instance of a chain (stream, or host), of an event or of a communicator.
struct Moment {
  Index chain = 0;
  Int position = -1;         ///< in its chain; -1: never
  std::vector<Int> clock{};  ///< by chain: instances that surely ended before it began

  [[nodiscard]] Int knows(Index of) const {
    return position < 0 ? 0 : of == chain ? position + 1 : clock[of];
  }
};

struct Touch {
  Index chain;
  Int position;
  const Op* op;
  bool writes;
};
struct Owned {
  Index owner = kNone;  ///< the live buffer
  std::vector<Touch> touches{};
};

class Races {
 public:
  Races(const PlanView& view, const Plan& plan, const Json& clocks, CheckedPlan& figures)
      : view_(view), plan_(plan), clocks_(clocks), figures_(figures) {
    for (Index c = 0; c <= host_; ++c)
      chains_.push_back({.chain = c, .clock = std::vector<Int>(host_ + 1)});
    for (const Json& pool : view.json.at("pools"))
      pools_.push_back({{0, {}}, {pool.at("height"), {}}});
    for (const Operand& whole : view.buffers)
      if (view.json.at("buffers")[whole.buffer].value("persistent", false))
        for (Owned* cell : cut_out(pools_[whole.pool], whole.begin, whole.end))
          if (std::exchange(cell->owner, whole.buffer) != kNone)
            refuse("buffer {}: shares bytes with a persistent one", whole.buffer);
    for (const Instance& instance : plan_) issue(instance);
    for (const auto& [json, wait] : waits_)
      if (bound_[json] != stated_in(*wait))
        refuse("{}: states a record that it never gets", wait->place());
    if (next_clock_ != clocks_.size())
      refuse("clocks: entry {} belongs to no instance", next_clock_);
    figures_.instances += number_;
  }

 private:
  /// The next instance of a chain, which follows that moment too.
  Moment& begin(Index chain, const Op& op, const Moment& after = {}, bool same_launch = false) {
    Moment& moment = chains_[chain];
    moment.position += same_launch ? 0 : 1;
    const Int number = number_++;
    if (next_clock_ == clocks_.size() || clocks_[next_clock_].at(0) != number) return moment;
    const Json& claim = clocks_[next_clock_++];
    for (std::size_t i = 1; i < claim.size(); i += 2) {
      const Index of = claim[i];
      const Int least = claim.at(i + 1);
      const Int known = std::max({moment.clock.at(of), after.knows(of), chains_[host_].knows(of)});
      if (of == chain || least > known)
        refuse("{}: follows {} of chain {}, not {}", op.place(), known, of, least);
      moment.clock[of] = std::max(moment.clock[of], least);
      ++figures_.orderings;
    }
    return moment;
  }

  void issue(const Instance& instance) {
    const Op& op = *instance.op;
    auto& runs = runs_[instance.list];
    if (runs.empty() || runs.back() != instance.run) runs.push_back(instance.run);
    steps_[instance.list] = instance.step;
    const bool groups = op.kind == "group_begin" || op.kind == "group_end";
    if (open_groups_ > 0 &&
        (group_stream_ != op.stream || (op.kind != "collective" && !groups) ||
         group_communicator_ != view_.at("communicators", *op.body, "communicator")))
      refuse("{}: differs in stream or communicator from the group of collectives that it is in",
             op.place());
    if (op.kind == "host_wait" || op.kind == "wait") {
      bind(instance);
      begin(op.kind == "wait" ? op.stream : host_, op, record(op));
    } else if (op.kind == "record") {
      record(op) = begin(op.stream, op);
      recorded_[op.event] = &instance;
    } else if (op.kind == "collective") {
      Moment& latest = collectives_[view_.at("communicators", *op.body, "communicator")];
      touch(begin(op.stream, op, latest, open_groups_ > 0), op, op.operands);
      latest = chains_[op.stream];
    } else if (groups) {
      begin(op.stream, op, {}, open_groups_ > 0);
      group_stream_ = op.stream;
      group_communicator_ = view_.at("communicators", *op.body, "communicator");
      open_groups_ += op.kind == "group_begin" ? 1 : -1;
      if (open_groups_ < 0) refuse("{}: is a group_end without group_begin", op.place());
    } else if (op.kind == "acquire" || op.kind == "release") {
      const Index buffer = op.operands.at(0).buffer;
      const bool frees = op.kind == "release";
      touch(begin(op.stream, op), op, op.operands, frees ? buffer : kNone, frees ? kNone : buffer);
    } else {
      if (op.kind != "kernel" && op.kind != "copy") refuse("{}: kind {}", op.place(), op.kind);
      if (op.kind == "copy" && view_.port_of(op) != nullptr) do_host_work(instance);
      touch(begin(op.stream, op), op, op.operands);
    }
  }

  /// A record, and how many runs of its list of ops lie between it and a wait. 0 is the run that
  /// contains the wait, or the last one of this step. 1 is the last one of the step before, where
  /// this step has not come to that list.
  using Binding = std::pair<Int, Int>;
  static std::set<Binding> stated_in(const Op& wait) {
    std::set<Binding> stated;
    for (const Json& entry : wait.body->at("bindings"))
      stated.emplace(entry.at("record"), entry.at("distance"));
    return stated;
  }
  /// The number of runs of a list after its last one, as a wait's distance counts them.
  [[nodiscard]] Int after_last(Int list, const Instance& wait) const {
    const auto last = steps_.find(list);
    return last != steps_.end() && last->second == wait.step ? 0 : 1;
  }
  void bind(const Instance& wait) {
    const std::set<Binding> stated = stated_in(*wait.op);
    auto& bound = bound_[wait.op->json];
    waits_.emplace(wait.op->json, wait.op);
    const auto record = recorded_.find(wait.op->event);
    if (record != recorded_.end()) {
      const Instance& by = *record->second;
      const auto& runs = runs_.at(by.list);
      const Int later = runs.end() - std::ranges::upper_bound(runs, by.run);
      const Binding so{by.op->id, later + after_last(by.list, wait)};
      if (!stated.contains(so))
        refuse("{}: gets record {} at distance {}, which its bindings do not state",
               wait.op->place(), so.first, so.second);
      bound.insert(so);
    } else if (std::ranges::none_of(stated, [&](const Binding& of) {
                 const Int list = list_of(of.first);
                 return of.second >= std::ssize(runs_[list]) + after_last(list, wait);
               })) {
      refuse("{}: waits for an event that nothing has recorded", wait.op->place());
    }
  }
  [[nodiscard]] Int list_of(Int record) const {
    const auto found = std::ranges::find(plan_, record, [](const Instance& i) { return i.op->id; });
    if (found == plan_.end()) refuse("bindings: there is no op {}", record);
    return found->list;
  }

  Moment& record(const Op& op) { return records_[op.event]; }

  /// Before it issues a copy of a port, the host waits until the last run of that op has ended, which the
  /// next record on its stream shows. Then the host fills the copy's source or reads its
  /// destination.
  void do_host_work(const Instance& copy) {
    const Instance* end = plan_.data() + plan_.size();
    const Instance* tells = std::find_if(&copy, end, [&](const Instance& other) {
      return other.op->kind == "record" && other.op->stream == copy.op->stream;
    });
    if (tells == end || tells->run != copy.run ||
        view_.turns.at("events").at(view_.at("events", *tells->op->body, "event")).count > 1)
      refuse(
          "{}: no event of one instance is recorded after it, so that the host cannot know its end",
          copy.op->place());
    Operand memory = *view_.port_of(*copy.op);
    memory.writes = copy.op->does == "h2d";
    touch(begin(host_, *copy.op, record(*tells->op)), *copy.op, {memory});
  }

  /// Accesses to buffers that own their bytes; or to all bytes of one, which change their owner.
  /// All checks come before all changes: an op does not conflict with itself.
  static constexpr Index kSame = kNone - 1;  ///< the operand's own buffer
  void touch(const Moment& now, const Op& op, const std::vector<Operand>& operands,
             Index from = kSame, Index to = kSame) {
    for (const Operand& operand : operands)
      for (const Owned* cell : cut_out(pools_[operand.pool], operand.begin, operand.end)) {
        if (cell->owner != (from == kSame ? operand.buffer : from))
          refuse("{}: on bytes of buffer {}, {} is live", op.place(), operand.buffer,
                 cell->owner == kNone ? "none" : std::to_string(cell->owner));
        for (const Touch& touch : cell->touches)
          if ((operand.writes || touch.writes) &&
              touch.position >= (touch.chain == now.chain ? now.position : now.clock[touch.chain]))
            refuse("{}: may run before {} has ended", op.place(), touch.op->place());
        ++figures_.accesses;
      }
    for (const Operand& operand : operands) {
      auto& pool = pools_[operand.pool];
      for (Owned* cell : cut_out(pool, operand.begin, operand.end)) {
        std::erase_if(cell->touches, [&](const Touch& touch) {
          return operand.writes || (touch.chain == now.chain && !touch.writes);
        });
        cell->touches.push_back({now.chain, now.position, &op, operand.writes});
        if (to != kSame) cell->owner = to;
      }
      if (to != kSame && operand.begin < operand.end)  // one cell does for all of them
        pool.erase(std::next(pool.find(operand.begin)), pool.find(operand.end));
    }
  }

  const PlanView& view_;
  const Plan& plan_;
  const Json& clocks_;
  CheckedPlan& figures_;
  Index host_ = view_.json.at("streams").size();
  std::vector<Moment> chains_{};  ///< their latest instances; the host's is last
  std::map<Index, Moment> records_{}, collectives_{};  ///< the latest, by event or communicator
  std::map<Index, const Instance*> recorded_{};        ///< likewise
  std::map<Int, std::vector<Int>> runs_{};             ///< by list of ops: its runs so far
  std::map<Int, Int> steps_{};                         ///< by list: the last one's step
  std::map<const Json*, const Op*> waits_{};           ///< one variant of each
  std::map<const Json*, std::set<Binding>> bound_{};   ///< by wait
  std::vector<std::map<Int, Owned>> pools_{};          ///< by the cells' first bytes
  Int number_ = 0;                                     ///< of instances, the host's work included
  std::size_t next_clock_ = 0;
  int open_groups_ = 0;
  Index group_stream_ = 0, group_communicator_ = 0;
};

}  // namespace

void check_races(const PlanView& view, const Plan& plan, const Json& clocks, CheckedPlan& figures) {
  Races(view, plan, clocks, figures);
}

}  // namespace mfsdp::checker
