#include "verify/traces/stream_waits.hpp"

#include <algorithm>

namespace mfsdp::traces {
namespace {

bool is_known(const SyncMark& mark) {
  return mark.correlation != 0 && mark.waits_on_stream && mark.record_correlation;
}

}  // namespace

WaitsKnown waits_known(const Trace& trace) {
  if (std::ranges::none_of(trace.syncs, &SyncMark::stream_wait)) return WaitsKnown::absent;
  const bool some = std::ranges::any_of(
      trace.syncs, [](const SyncMark& mark) { return mark.stream_wait && is_known(mark); });
  return some ? WaitsKnown::recorded : WaitsKnown::dropped;
}

StreamWaits::StreamWaits(const Trace& trace) {
  for (const SyncMark& mark : trace.syncs) {
    if (!mark.stream_wait) continue;
    by_stream_[{mark.device, mark.stream}].push_back(
        {.correlation = mark.correlation,
         .known = is_known(mark),
         .on_stream = mark.waits_on_stream.value_or(0),
         .record = mark.record_correlation.value_or(0)});
  }
  for (const GpuWork& work : trace.work) with_work_.emplace(work.device, work.stream);
  for (const CollectiveCall& call : trace.collectives) with_work_.emplace(call.device, call.stream);
  for (auto& [stream, waits] : by_stream_) std::ranges::stable_sort(waits, {}, &Wait::correlation);
}

Ordered StreamWaits::orders(const CollectiveCall& earlier, const CollectiveCall& later) const {
  if (by_stream_.empty() || earlier.correlation == 0 || later.correlation == 0)
    return Ordered::unknown;
  // For each stream: work that was launched before this correlation ends before `later` begins.
  std::map<std::int64_t, std::int64_t> ended_before{{later.stream, later.correlation}};
  std::vector<std::int64_t> to_look_at{later.stream};
  bool unknown = false;
  while (!to_look_at.empty()) {
    const std::int64_t stream = to_look_at.back();
    to_look_at.pop_back();
    const std::int64_t limit = ended_before.at(stream);
    if (stream == earlier.stream && limit > earlier.correlation) return Ordered::yes;
    const auto found = by_stream_.find({later.device, stream});
    if (found == by_stream_.end()) continue;
    for (const Wait& wait : found->second) {
      if (wait.correlation >= limit) break;
      // A wait without a correlation may be anywhere. One before the launch cannot wait for it.
      if (!wait.known) unknown |= wait.correlation == 0 || wait.correlation > earlier.correlation;
      if (!wait.known || wait.record <= earlier.correlation) continue;
      if (!with_work_.contains({later.device, wait.on_stream})) continue;
      std::int64_t& reached = ended_before[wait.on_stream];
      if (wait.record <= reached) continue;
      reached = wait.record;
      to_look_at.push_back(wait.on_stream);
    }
  }
  return unknown ? Ordered::unknown : Ordered::no;
}

}  // namespace mfsdp::traces
