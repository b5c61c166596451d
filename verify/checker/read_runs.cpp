// The runs of a plan's ops in the order of the host: its segments with their repetitions, and the
// passes that these call. An op has a variant for each combination of instances that its runs use.
#include <algorithm>
#include <numeric>

#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {
namespace {

constexpr Int kMostRuns = Int{1} << 22;  ///< of ops in two steps, where all repetitions run

/// The lists of ops of a plan: those of its segments, then its passes.
struct Lists {
  std::vector<const Json*> ops{};
  std::map<Int, Int> passes{};  ///< by id: which list
};

Lists lists_of(PlanView& view, const Json& plan) {
  static const Json none = Json::array();
  Lists lists;
  for (const Json& segment : plan.at("segments")) {
    const bool calls = !segment.value("calls", Json::array()).empty();
    if (calls && !segment.value("ops", Json::array()).empty())
      refuse("segment {}: has both ops and calls", segment.at("name").dump());
    lists.ops.push_back(calls ? &none : &segment.at("ops"));
  }
  if (plan.contains("passes"))
    for (const Json& pass : plan.at("passes")) {
      if (!lists.passes.emplace(pass.at("id"), std::ssize(lists.ops)).second)
        refuse("passes: an id appears twice");
      lists.ops.push_back(&pass.at("ops"));
    }
  for (const Json* ops : lists.ops)
    for (const Json& op : *ops) {
      if (!view.ids["ops"].emplace(op.at("id"), 0).second)
        refuse("op {}: expected an id of its own", op.value("name", "?"));
      view.rotates = view.rotates || op.value("lag", Int{0}) > 0;
    }
  for (const Json& segment : plan.at("segments"))
    for (const Json& call : segment.value("calls", Json::array()))
      view.rotates =
          view.rotates || call.value("lag", Int{0}) > 0 || call.value("lag_step", Int{0}) != 0;
  return lists;
}

/// An op of a list with the variants that were made of it.
struct Listed {
  const Json* json = nullptr;
  Int lag = 0;
  Int period = 1;  ///< microbatches after which it uses the same instances
  std::map<Int, const Op*> variants{};
};

/// Microbatches after which an op is back at the same instances.
Int period_of(const PlanView& view, const Json& op) {
  Int period = 1;
  const auto add = [&](const char* list, const Json& object, const char* key) {
    if (!object.contains(key)) return;
    const Int count = view.turns.at(list)[view.at(list, object, key)].count;
    period = times(period / std::gcd(period, count), count);
  };
  const Json& body = op.at("body").begin().value();
  add("buffers", body, "buffer");
  add("events", body, "event");
  for (const char* role : {"input", "output"})
    if (body.contains(role)) add("buffers", body.at(role), "buffer");
  for (const Json& operand : body.value("operands", Json::array()))
    add("buffers", operand, "buffer");
  return period;
}

class Unroller {
 public:
  Unroller(PlanView& view, const Json& json, const Lists& lists)
      : view_(view), json_(json), passes_(lists.passes) {
    for (const Json* ops : lists.ops) {
      auto& list = lists_.emplace_back();
      for (const Json& op : *ops)
        list.push_back(
            {.json = &op, .lag = op.value("lag", Int{0}), .period = period_of(view, op)});
    }
  }

  Plan run() {
    for (Int step = 0; step < 2; ++step) {
      begun_ = 0;
      for (Int s = 0; s < std::ssize(json_.at("segments")); ++s) run(step, s);
    }
    return std::move(runs_);
  }

 private:
  void run(Int step, Int s) {
    const Json& segment = json_.at("segments")[static_cast<Index>(s)];
    const Int repeat = segment.at("repeat");
    const Int runs = view_.rotates ? repeat : std::min<Int>(kRepetitions, repeat);
    for (Int r = 0; r < runs; ++r, ++repetition_) {
      begun_ = plus(begun_, segment.at("microbatches"));
      const Instance at{.op = nullptr,
                        .step = step,
                        .repetition = repetition_,
                        .run = 0,
                        .segment = s,
                        .list = s};
      if (!segment.contains("calls") || segment.at("calls").empty()) {
        issue(at, 0);
        continue;
      }
      for (const Json& call : segment.at("calls")) {
        const auto list = passes_.find(call.at("pass"));
        const Int lag_step = call.value("lag_step", Int{0});
        const Int lag = call.value("lag", Int{0}) + (lag_step == 0 ? 0 : -r);
        if (list == passes_.end() || lag < 0 || (lag_step != 0 && lag_step != -1))
          refuse("segment {}: calls no pass, or one on a microbatch that has not begun",
                 segment.at("name").dump());
        Instance in_pass = at;
        in_pass.list = list->second;
        issue(in_pass, lag);
      }
    }
  }

  void issue(Instance at, Int lag) {
    at.run = run_++;
    for (Listed& listed : lists_[static_cast<Index>(at.list)]) {
      const Int microbatch = begun_ - 1 - lag - listed.lag;
      const Int variant = turn_of(microbatch, listed.period);
      const Op*& op = listed.variants[variant];
      if (op == nullptr) op = read_op(view_, *listed.json, variant);
      at.op = op;
      runs_.push_back(at);
    }
    if (view_.rotates && std::max(run_, std::ssize(runs_)) > kMostRuns)
      refuse("plan {}: has more than {} runs of ops in two steps", json_.at("name").dump(),
             kMostRuns);
  }

  PlanView& view_;
  const Json& json_;
  const std::map<Int, Int>& passes_;
  std::vector<std::vector<Listed>> lists_{};
  Plan runs_{};
  Int begun_ = 0, run_ = 0, repetition_ = 0;
};

}  // namespace

void read_runs(PlanView& view) {
  const Json& plans = view.json.at("plans");
  std::vector<Lists> lists;
  for (const Json& plan : plans) lists.push_back(lists_of(view, plan));
  for (Index p = 0; p < lists.size(); ++p)
    view.plans.push_back(Unroller(view, plans[p], lists[p]).run());
}

}  // namespace mfsdp::checker
