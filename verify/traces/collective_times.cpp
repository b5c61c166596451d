#include "verify/traces/collective_times.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "verify/traces/kernel_kinds.hpp"

namespace mfsdp::traces {
namespace {

/// The largest number of intervals that contain one instant; empty intervals contain none.
std::int64_t most_at_once(const std::vector<Interval>& intervals) {
  std::vector<std::pair<Nanos, int>> changes;
  for (const Interval& row : intervals) {
    if (row.end <= row.begin) continue;
    changes.emplace_back(row.begin, 1);
    changes.emplace_back(row.end, -1);
  }
  std::ranges::sort(changes);  // half-open: at the same instant, ends come before begins
  std::int64_t most = 0;
  std::int64_t now = 0;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  return most;
}

}  // namespace

std::optional<Bytes> bytes_of(const Trace& trace, const CollectiveCall& call) {
  const auto size = element_bytes(trace.names[call.dtype]);
  const std::int64_t elements = std::max(call.in_elements, call.out_elements);
  if (!size || elements == 0) return std::nullopt;
  return Bytes(checked_mul(elements, *size));
}

bool is_reduction(CollectiveOp op) {
  return op == CollectiveOp::reduce_scatter || op == CollectiveOp::all_reduce ||
         op == CollectiveOp::reduce;
}

std::optional<Nanos> stall_of(const ExposedCall& call, const BusyTime& compute,
                              const ReportSettings& settings) {
  const Nanos end = call.call->end;
  const auto next = compute.next_begin(end);
  if (!next || *next - end > settings.resumes_within) return std::nullopt;
  const Nanos busy_until = compute.last_end(end).value_or(call.begin);
  return end - std::clamp(busy_until, call.begin, end);
}

std::vector<ExposedCall> exposed_calls(std::vector<const CollectiveCall*> calls,
                                       const BusyTime& compute) {
  std::ranges::stable_sort(calls, {}, [](const CollectiveCall* call) {
    return std::tuple(call->begin, call->end, call->stream);
  });
  std::vector<ExposedCall> list;
  list.reserve(calls.size());
  for (const CollectiveCall* call : calls)
    list.push_back({.begin = call->begin,
                    .call = call,
                    .exposed = call->end - call->begin - compute.within(call->begin, call->end)});
  return list;
}

std::vector<CollectiveSummary> summarise(const Trace& trace, std::span<const ExposedCall> calls) {
  std::map<std::tuple<CollectiveOp, std::uint32_t, std::uint32_t, std::int64_t>, CollectiveSummary>
      rows;
  for (const auto& [begin, call, exposed] : calls) {
    const auto [at, is_new] =
        rows.try_emplace(std::tuple(call->op, call->group, call->dtype, call->group_size));
    CollectiveSummary& row = at->second;
    if (is_new) {
      row.op = call->op;
      row.group = trace.names[call->group];
      row.dtype = trace.names[call->dtype];
      row.group_size = call->group_size;
      row.bytes = Bytes(0);
    }
    ++row.calls;
    row.time += call->end - call->begin;
    row.exposed += exposed;
    row.most_exposed = std::max(row.most_exposed, exposed);
    const auto bytes = bytes_of(trace, *call);
    row.bytes = row.bytes && bytes ? std::optional(*row.bytes + *bytes) : std::nullopt;
  }
  std::vector<CollectiveSummary> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  std::ranges::stable_sort(list, std::ranges::greater(), &CollectiveSummary::exposed);
  return list;
}

void add_late_gathers(DeviceReport& report, const Trace& trace, std::span<const ExposedCall> calls,
                      const BusyTime& compute, const ReportSettings& settings) {
  std::map<std::int32_t, Nanos> free_from;  // by stream
  for (const ExposedCall& row : calls) {
    const auto& [begin, call, exposed] = row;
    const auto [at, is_first] = free_from.try_emplace(call->stream, report.begin);
    const Nanos free = std::min(at->second, begin);
    at->second = std::max(at->second, call->end);
    if (call->op != CollectiveOp::all_gather || exposed == Nanos(0)) continue;

    const auto stalled = stall_of(row, compute, settings);
    if (!stalled) continue;
    const Nanos stall = *stalled;
    const Nanos could_hide = std::min(stall, compute.within(free, begin));
    if (could_hide < settings.least_hidable) continue;
    ++report.late_gather_count;
    report.could_hide += could_hide;
    const Nanos launch = std::clamp(call->launched.value_or(free), free, begin);
    report.late_gathers.push_back({.begin = begin,
                                   .end = call->end,
                                   .stream = call->stream,
                                   .group = trace.names[call->group],
                                   .stall = stall,
                                   .could_hide = could_hide,
                                   .free_before_launch = launch - free,
                                   .free_after_launch = begin - launch,
                                   .launch_known = call->launched.has_value()});
  }
  std::ranges::stable_sort(report.late_gathers, std::ranges::greater(), &LateGather::could_hide);
  if (report.late_gathers.size() > settings.most_listed)
    report.late_gathers.resize(settings.most_listed);
}

void add_queued(DeviceReport& report, std::span<const ExposedCall> calls,
                const ReportSettings& settings) {
  std::map<std::int32_t, const CollectiveCall*> last_of_stream;
  std::map<std::uint32_t, const CollectiveCall*> last_of_group;  // only groups with a name
  std::map<std::pair<CollectiveOp, CollectiveOp>, QueuedBehind> rows;
  for (const auto& [begin, call, exposed] : calls) {
    const CollectiveCall* before = std::exchange(last_of_stream[call->stream], call);
    if (call->group != 0) {
      const CollectiveCall* other = std::exchange(last_of_group[call->group], call);
      if (other != nullptr && (before == nullptr || other->end > before->end)) before = other;
    }
    if (!call->launched) ++report.launches_unknown;
    if (before == nullptr || !call->launched) continue;
    if (begin < before->end || begin - before->end > settings.back_to_back) continue;
    const Nanos queued = before->end - std::max(*call->launched, before->begin);
    if (queued <= Nanos(0)) continue;
    QueuedBehind& row = rows[{before->op, call->op}];
    row.first = before->op;
    row.second = call->op;
    ++row.calls;
    row.queued += queued;
    row.exposed += exposed;
  }
  for (const auto& [key, row] : rows) report.queued.push_back(row);
  std::ranges::stable_sort(report.queued, std::ranges::greater(), &QueuedBehind::queued);
}

ReductionsInFlight reductions_in_flight(std::span<const ExposedCall> calls) {
  std::vector<Interval> running;
  std::vector<Interval> queued;
  std::vector<Interval> pending;
  std::set<CollectiveOp> ops;
  for (const auto& [begin, call, exposed] : calls) {
    if (!is_reduction(call->op)) continue;
    const Nanos launched = std::min(call->launched.value_or(begin), begin);
    running.push_back({begin, call->end});
    queued.push_back({launched, begin});
    pending.push_back({launched, call->end});
    ops.insert(call->op);
  }
  return {.most_running = most_at_once(running),
          .most_queued = most_at_once(queued),
          .most_pending = most_at_once(pending),
          .op = ops.size() == 1 ? std::optional(*ops.begin()) : std::nullopt};
}

}  // namespace mfsdp::traces
