#include "verify/mutation/rebind.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "core/plan/rotation.hpp"

namespace mfsdp {
namespace {

/// Where a record was issued.
struct Latest {
  OpId record;
  std::size_t segment = 0;
  std::int64_t run = 0;  ///< of the segment, counted from 1
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
    runs_.assign(plan.segments.size(), 0);
    // Where events take turns, which one it is depends on how many microbatches have begun.
    const std::int64_t most = turns_.empty() ? 2 : kMostRepetitions;
    const int steps = turns_.empty() ? 2 : 3;
    for (int step = 0; step < steps; ++step) {
      begun_ = 0;
      for (segment_ = 0; segment_ < plan.segments.size(); ++segment_) {
        const Segment& segment = plan.segments[segment_];
        for (std::int64_t i = 0; i < std::min(segment.repeat, most); ++i) {
          begun_ += segment.microbatches;
          ++runs_[segment_];
          for (const Op& op : segment.ops) issue(op);
        }
      }
    }
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
  void issue(const Op& op) {
    if (const auto* record = std::get_if<Record>(&op.body))
      latest_[turn_of(record->event, op)] = {
          .record = op.id, .segment = segment_, .run = runs_[segment_]};
    if (const auto* wait = std::get_if<Wait>(&op.body)) get(op, wait->event);
    if (const auto* wait = std::get_if<HostWait>(&op.body)) get(op, wait->event);
  }

  using Turn = std::pair<EventId, std::int64_t>;
  [[nodiscard]] Turn turn_of(EventId event, const Op& op) const {
    const auto turns = turns_.find(event);
    return {event, turns == turns_.end() ? 0 : instance_of(begun_, op.lag, turns->second)};
  }

  void get(const Op& wait, EventId event) {
    const auto found = latest_.find(turn_of(event, wait));
    if (found == latest_.end()) return;
    const Latest& latest = found->second;
    const std::int64_t not_come_to = latest.segment > segment_ ? 1 : 0;
    const Binding binding{.record = latest.record,
                          .distance = runs_[latest.segment] - latest.run + not_come_to};
    Bindings& bindings = got_[wait.id];
    if (std::ranges::find(bindings, binding) == bindings.end()) bindings.push_back(binding);
  }

  std::map<EventId, std::int64_t> turns_;  ///< of events that have several instances
  std::vector<std::int64_t> runs_;         ///< by segment, over all steps
  std::int64_t begun_ = 0;                 ///< microbatches of this step
  std::size_t segment_ = 0;                ///< that runs
  std::map<Turn, Latest> latest_;
  std::map<OpId, Bindings> got_;
};

}  // namespace

void rebind(Plan& plan, const std::vector<Event>& events) {
  Issue host(events);
  host.run(plan);
  for (Segment& segment : plan.segments)
    for (Op& op : segment.ops) host.state(op);
}

}  // namespace mfsdp
