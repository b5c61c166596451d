#include "verify/mutation/rebind.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace mfsdp {
namespace {

/// Where a record was issued.
struct Latest {
  OpId record;
  int step = 0;
  std::size_t segment = 0;
  std::int64_t repetition = 0;
};

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
  void run(const Plan& plan) {
    for (now_.step = 0; now_.step < 2; ++now_.step)
      for (now_.segment = 0; now_.segment < plan.segments.size(); ++now_.segment) {
        const Segment& segment = plan.segments[now_.segment];
        const std::int64_t repetitions = std::min<std::int64_t>(segment.repeat, 2);
        for (now_.repetition = 0; now_.repetition < repetitions; ++now_.repetition)
          for (const Op& op : segment.ops) issue(op);
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
    if (const auto* record = std::get_if<Record>(&op.body)) {
      latest_[record->event] = now_;
      latest_[record->event].record = op.id;
    }
    if (const auto* wait = std::get_if<Wait>(&op.body)) get(op.id, wait->event);
    if (const auto* wait = std::get_if<HostWait>(&op.body)) get(op.id, wait->event);
  }

  void get(OpId wait, EventId event) {
    const auto found = latest_.find(event);
    if (found == latest_.end()) return;
    const Latest& latest = found->second;
    const bool here = latest.segment != now_.segment || latest.repetition == now_.repetition;
    const Binding binding{.record = latest.record,
                          .distance = latest.step == now_.step && here ? 0 : 1};
    Bindings& bindings = got_[wait];
    if (std::ranges::find(bindings, binding) == bindings.end()) bindings.push_back(binding);
  }

  Latest now_;
  std::map<EventId, Latest> latest_;
  std::map<OpId, Bindings> got_;
};

}  // namespace

void rebind(Plan& plan) {
  Issue host;
  host.run(plan);
  for (Segment& segment : plan.segments)
    for (Op& op : segment.ops) host.state(op);
}

}  // namespace mfsdp
