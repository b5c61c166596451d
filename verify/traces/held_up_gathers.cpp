#include "verify/traces/held_up_gathers.hpp"

#include <algorithm>
#include <map>

namespace mfsdp::traces {
namespace {

/// The time from which a call's stream and process group are free. Calls come in order of begin.
class FreeFrom {
 public:
  explicit FreeFrom(Nanos begin) : begin_(begin) {}

  /// The time from which both are free for `call`, ignoring `reduction`.
  [[nodiscard]] Nanos of(const CollectiveCall& call, const CollectiveCall* reduction) const {
    Nanos free = begin_;
    for (const CollectiveCall* before : {last(streams_, call.stream), last(groups_, call.group)})
      if (before != nullptr && before != reduction) free = std::max(free, before->end);
    return free;
  }
  void add(const CollectiveCall& call) {
    streams_[call.stream] = &call;
    if (call.group != 0) groups_[call.group] = &call;
  }

 private:
  static const CollectiveCall* last(const auto& map, auto key) {
    const auto found = map.find(key);
    return found == map.end() ? nullptr : found->second;
  }

  Nanos begin_;
  std::map<std::int32_t, const CollectiveCall*> streams_;
  std::map<std::uint32_t, const CollectiveCall*> groups_;
};

bool launched_first(const CollectiveCall& first, const CollectiveCall& second) {
  return !first.launched || !second.launched || *first.launched < *second.launched;
}

/// The reduction whose end allowed the gather to begin; null if there is none.
const CollectiveCall* reduction_before(const CollectiveCall& gather,
                                       const std::vector<const CollectiveCall*>& reductions,
                                       const ReportSettings& settings) {
  const CollectiveCall* found = nullptr;
  for (const CollectiveCall* row : reductions) {
    if (row->end > gather.begin || gather.begin - row->end > settings.back_to_back) continue;
    if (launched_first(*row, gather) && (found == nullptr || row->end > found->end)) found = row;
  }
  return found;
}

}  // namespace

std::vector<HeldUpGather> held_up_gathers(const DeviceContext& device) {
  std::vector<HeldUpGather> list;
  std::vector<const CollectiveCall*> reductions;  // those that may end right before a later gather
  FreeFrom free_from(device.report.begin);
  for (const ExposedCall& row : device.calls) {
    const CollectiveCall& call = *row.call;
    std::erase_if(reductions, [&](const CollectiveCall* old) {
      return old->end < call.begin && call.begin - old->end > device.settings.back_to_back;
    });
    if (is_reduction(call.op)) reductions.push_back(&call);
    const CollectiveCall* reduction = call.op == CollectiveOp::all_gather
                                          ? reduction_before(call, reductions, device.settings)
                                          : nullptr;
    const Nanos free = free_from.of(call, reduction);
    free_from.add(call);
    const auto stall = stall_of(row, device.compute, device.settings);
    if (reduction == nullptr || !stall) continue;
    const Nanos ready = std::max({free, call.launched.value_or(free), reduction->begin});
    const Nanos lost = std::min(*stall, reduction->end - std::min(ready, reduction->end));
    if (lost < device.settings.least_hidable) continue;
    list.push_back({.gather = &call,
                    .reduction = reduction,
                    .lost = lost,
                    .launch_known = call.launched.has_value()});
  }
  return list;
}

}  // namespace mfsdp::traces
