#include "verify/mutation/rebind.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/plan/instances.hpp"

namespace mfsdp {
namespace {

/// Where a record was issued.
struct Latest {
  OpId record;
  std::size_t list = 0;  ///< of ops (core/plan/instances.hpp)
  std::int64_t run = 0;  ///< of the list, counted from 1
};

constexpr std::int64_t kMostRepetitions = 1000;  ///< that are gone through, of plans in turns

using Bindings = std::vector<Binding>;

bool same(Bindings a, Bindings b) {
  const auto key = [](const Binding& binding) {
    return std::pair(binding.record, binding.distance);
  };
  std::ranges::sort(a, {}, key);
  std::ranges::sort(b, {}, key);
  return a == b;
}

class Issue {
 public:
  explicit Issue(const std::vector<Event>& events) {
    for (const Event& event : events)
      if (event.instances) turns_.emplace(event.id, *event.instances);
  }

  void run(const Plan& plan) {
    runs_.assign(count_op_lists(plan), 0);
    runs_before_step_ = runs_;
    // Where events take turns, which one it is depends on how many microbatches have begun.
    const std::int64_t most = turns_.empty() ? 2 : kMostRepetitions;
    const std::int64_t steps = turns_.empty() ? 2 : 3;
    std::int64_t step = 0;
    for_each_instance(plan, {.steps = steps, .repetitions = most},
                      [&](const OpRun& run, const Op& op) {
                        if (std::exchange(step, run.step) != run.step) runs_before_step_ = runs_;
                        if (run.position == 0) ++runs_[run.list];
                        issue(run, op);
                      });
  }

  void state(Op& op) const {
    const auto bind = [&](auto* wait) {
      const auto found = got_.find(op.id);
      if (wait != nullptr && found != got_.end() && !same(found->second, wait->bindings))
        wait->bindings = found->second;
    };
    bind(std::get_if<Wait>(&op.body));
    bind(std::get_if<HostWait>(&op.body));
  }

 private:
  void issue(const OpRun& run, const Op& op) {
    if (const auto* record = std::get_if<Record>(&op.body))
      latest_[instance(record->event, run)] = {
          .record = op.id, .list = run.list, .run = runs_[run.list]};
    if (const auto* wait = std::get_if<Wait>(&op.body)) get(run, op, wait->event);
    if (const auto* wait = std::get_if<HostWait>(&op.body)) get(run, op, wait->event);
  }

  using Instance = std::pair<EventId, std::int64_t>;
  [[nodiscard]] Instance instance(EventId event, const OpRun& run) const {
    const auto turns = turns_.find(event);
    return {event, turns == turns_.end() ? 0 : run.instance(turns->second)};
  }

  void get(const OpRun& run, const Op& wait, EventId event) {
    const auto found = latest_.find(instance(event, run));
    if (found == latest_.end()) return;
    const Latest& latest = found->second;
    const std::int64_t not_come_to = runs_[latest.list] == runs_before_step_[latest.list] ? 1 : 0;
    const Binding binding{.record = latest.record,
                          .distance = runs_[latest.list] - latest.run + not_come_to};
    Bindings& bindings = got_[wait.id];
    if (std::ranges::find(bindings, binding) == bindings.end()) bindings.push_back(binding);
  }

  std::map<EventId, std::int64_t> turns_;  ///< of events that have several instances
  std::vector<std::int64_t> runs_;         ///< by list of ops, over all steps
  std::vector<std::int64_t> runs_before_step_;
  std::map<Instance, Latest> latest_;
  std::map<OpId, Bindings> got_;
};

}  // namespace

void rebind(Plan& plan, const std::vector<Event>& events) {
  Issue host(events);
  host.run(plan);
  for (Op& op : ops_of(plan)) host.state(op);
}

}  // namespace mfsdp
