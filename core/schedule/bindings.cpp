#include "core/schedule/bindings.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/plan/instances.hpp"

namespace mfsdp {
namespace {

using LastRecords = std::unordered_map<EventId, OpId>;

/// Searches backwards from the start of a segment for the records that may be the latest.
class Search {
 public:
  Search(const std::vector<Segment>& segments, const std::vector<LastRecords>& last)
      : segments_(segments), last_(last) {}

  std::vector<Binding> before(std::size_t segment, EventId event) {
    bindings_.clear();
    if (segments_[segment].repeat > 1) add_self(segment, event);
    std::int64_t distance = 0;
    for (std::size_t back = 1; back <= segments_.size(); ++back) {
      if (back > segment) distance = 1;  // in the previous step
      const std::size_t s = (segment + segments_.size() - back) % segments_.size();
      if (add(s, event, distance)) break;
    }
    return bindings_;
  }

 private:
  bool add(std::size_t segment, EventId event, std::int64_t distance) {
    const auto found = last_[segment].find(event);
    if (found == last_[segment].end()) return false;
    const Binding binding{.record = found->second, .distance = distance};
    if (std::ranges::find(bindings_, binding) == bindings_.end()) bindings_.push_back(binding);
    return true;
  }
  /// A repeated segment may also follow itself.
  void add_self(std::size_t segment, EventId event) { add(segment, event, 1); }

  const std::vector<Segment>& segments_;
  const std::vector<LastRecords>& last_;
  std::vector<Binding> bindings_;
};

LastRecords last_records(const Segment& segment) {
  LastRecords last;
  for (const Op& op : segment.ops)
    if (const auto* record = std::get_if<Record>(&op.body)) last[record->event] = op.id;
  return last;
}

void bind_plain(Plan& plan) {
  std::vector<LastRecords> last;
  for (const Segment& segment : plan.segments) last.push_back(last_records(segment));
  Search search(plan.segments, last);
  for (std::size_t s = 0; s < plan.segments.size(); ++s) {
    LastRecords here;
    for (Op& op : plan.segments[s].ops) {
      if (const auto* record = std::get_if<Record>(&op.body)) here[record->event] = op.id;
      const auto bind = [&](auto& wait) {
        const auto found = here.find(wait.event);
        wait.bindings = found != here.end()
                            ? std::vector<Binding>{{.record = found->second, .distance = 0}}
                            : search.before(s, wait.event);
      };
      if (auto* wait = std::get_if<Wait>(&op.body)) bind(*wait);
      if (auto* wait = std::get_if<HostWait>(&op.body)) bind(*wait);
    }
  }
}

/// A record, and which run of its list of ops it was in.
struct RecordRun {
  OpId record;
  std::size_t list = 0;
  std::int64_t run = 0;
};

/// Runs of a list of ops so far.
struct ListRuns {
  std::int64_t count = 0;
  std::int64_t step = -1;  ///< of the last one
};

/// The records that waits get while a plan with passes, lags or instances is gone through.
class Runs {
 public:
  explicit Runs(std::span<const Event> events) {
    for (const Event& event : events) instances_[event.id] = event.instances.value_or(1);
  }

  void follow(const OpRun& run, const Op& op) {
    ListRuns& list = runs_[run.list];
    if (run.position == 0) list = {.count = list.count + 1, .step = run.step};
    if (const auto* record = std::get_if<Record>(&op.body))
      latest_[at(run, record->event)] = {.record = op.id, .list = run.list, .run = list.count};
    if (const auto* wait = std::get_if<Wait>(&op.body)) bind(run, op, wait->event);
    if (const auto* wait = std::get_if<HostWait>(&op.body)) bind(run, op, wait->event);
  }

  [[nodiscard]] std::vector<Binding> of(OpId wait) const {
    std::vector<Binding> made;
    if (const auto found = bindings_.find(wait); found != bindings_.end())
      for (const auto& [record, distance] : found->second)
        made.push_back({.record = OpId(record), .distance = distance});
    return made;
  }

 private:
  using EventTurn = std::pair<EventId, std::int64_t>;

  [[nodiscard]] EventTurn at(const OpRun& run, EventId event) const {
    const auto known = instances_.find(event);
    return {event, known == instances_.end() ? 0 : run.instance(known->second)};
  }
  /// Distances are those of core/plan/op.hpp.
  void bind(const OpRun& run, const Op& wait, EventId event) {
    const auto found = latest_.find(at(run, event));
    if (found == latest_.end()) return;
    const ListRuns& there = runs_[found->second.list];
    const std::int64_t distance = there.count - found->second.run + (there.step < run.step ? 1 : 0);
    bindings_[wait.id].emplace(found->second.record.value, distance);
  }

  std::map<EventId, std::int64_t> instances_;
  std::map<std::size_t, ListRuns> runs_;
  std::map<EventTurn, RecordRun> latest_;
  std::map<OpId, std::set<std::pair<std::uint32_t, std::int64_t>>> bindings_;
};

bool rotates(const Plan& plan, std::span<const Event> events) {
  return !plan.passes.empty() || std::ranges::any_of(events, [](const Event& event) {
    return event.instances.has_value();
  }) || std::ranges::any_of(ops_of(plan), [](const Op& op) { return op.lag > 0; });
}

}  // namespace

void resolve_bindings(Plan& plan, std::span<const Event> events) {
  if (!rotates(plan, events)) return bind_plain(plan);
  Runs runs(events);
  for_each_instance(plan, {.steps = 3},
                    [&](const OpRun& run, const Op& op) { runs.follow(run, op); });
  for (Op& op : ops_of(plan)) {
    if (auto* wait = std::get_if<Wait>(&op.body)) wait->bindings = runs.of(op.id);
    if (auto* wait = std::get_if<HostWait>(&op.body)) wait->bindings = runs.of(op.id);
  }
}

}  // namespace mfsdp
