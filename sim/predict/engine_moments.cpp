#include "sim/predict/engine_moments.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

namespace mfsdp {
namespace {

class Moments {
 public:
  Moments(const EnginePlan& plan, const std::vector<OpTime>& timeline, const IssueTime& host)
      : plan_(plan), host_(host), done_(plan.program.streams.size()) {
    for (const OpTime& op : timeline) ends_[{op.op.value, op.instance}] = op.end.value;
  }

  std::vector<OpMoment> run() {
    for (const Segment& segment : plan_.program.find_plan(PlanRole::train)->segments)
      for (std::int64_t i = 0; i < segment.repeat; ++i)
        for (const Op& op : segment.ops) issue(op, i);
    return std::move(moments_);
  }

 private:
  void issue(const Op& op, std::int64_t instance) {
    now_ += host_(op).value;
    std::int64_t& done = done_[op.stream.value];
    if (const auto end = ends_.find({op.id.value, instance}); end != ends_.end())
      done = std::max(done, end->second);
    if (std::holds_alternative<Record>(op.body)) recorded_[op.id.value] = done;
    if (const auto* wait = std::get_if<Wait>(&op.body))
      for (const Binding& binding : wait->bindings) done = std::max(done, time_of(binding));
    if (const auto* wait = std::get_if<HostWait>(&op.body))
      for (const Binding& binding : wait->bindings) now_ = std::max(now_, time_of(binding));
    OpMoment moment{.issued = now_};
    const auto use = std::ranges::lower_bound(plan_.in_use, op.id, {}, &UseAfterFree::release);
    if (use != plan_.in_use.end() && use->release == op.id)
      moment.passed = done_[use->stream.value];
    moments_.push_back(moment);
  }

  /// When the latest run of a record was reached; 0 where it was in an earlier step.
  [[nodiscard]] std::int64_t time_of(const Binding& binding) const {
    const auto found = recorded_.find(binding.record.value);
    return found == recorded_.end() ? 0 : found->second;
  }

  const EnginePlan& plan_;
  const IssueTime& host_;
  std::vector<std::int64_t> done_;  ///< by stream: what was issued is done by then
  std::map<std::pair<std::uint64_t, std::int64_t>, std::int64_t> ends_{};  ///< by op and instance
  std::map<std::uint64_t, std::int64_t> recorded_{};
  std::int64_t now_ = 0;
  std::vector<OpMoment> moments_{};
};

}  // namespace

std::vector<OpMoment> moments_of(const EnginePlan& plan, const std::vector<OpTime>& timeline,
                                 const IssueTime& host) {
  return Moments(plan, timeline, host).run();
}

}  // namespace mfsdp
