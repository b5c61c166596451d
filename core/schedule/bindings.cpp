#include "core/schedule/bindings.hpp"

#include <algorithm>
#include <unordered_map>

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
    if (std::find(bindings_.begin(), bindings_.end(), binding) == bindings_.end())
      bindings_.push_back(binding);
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

}  // namespace

void resolve_bindings(Plan& plan) {
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

}  // namespace mfsdp
