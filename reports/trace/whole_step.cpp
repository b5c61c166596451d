#include "reports/trace/whole_step.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace mfsdp {
namespace {

void add_omitted(const std::vector<OpTime>& timeline, const OmittedInstances& omitted,
                 std::vector<TimedOp>& ops) {
  for (const OpTime& op : timeline) {
    if (op.segment != omitted.segment || op.instance != omitted.first - 1) continue;
    for (std::int64_t i = 1; i <= omitted.count; ++i) {
      const Nanos later = omitted.period * i;
      ops.push_back({.op = &op,
                     .instance = op.instance + i,
                     .start = op.start + later,
                     .end = op.end + later,
                     .omitted = true});
    }
  }
}

void cut_overlaps(std::vector<TimedOp>& ops) {
  std::map<std::string_view, TimedOp*> last;  // by stream
  for (TimedOp& op : ops) {
    TimedOp*& before = last[op.op->stream];
    if (before != nullptr && op.start < before->end) {
      if (op.omitted) {
        op.start = before->end;
        op.end = std::max(op.end, op.start);
      } else if (before->omitted) {
        before->end = std::max(before->start, op.start);
      }
    }
    before = &op;
  }
}

}  // namespace

std::vector<TimedOp> whole_step(const RunFigures& run) {
  std::vector<TimedOp> ops;
  ops.reserve(run.timeline.size());
  for (const OpTime& op : run.timeline)
    ops.push_back({.op = &op, .instance = op.instance, .start = op.start, .end = op.end});
  for (const OmittedInstances& omitted : run.omitted) add_omitted(run.timeline, omitted, ops);
  std::ranges::stable_sort(ops, {}, [](const TimedOp& op) { return std::pair(op.start, op.end); });
  if (!run.omitted.empty()) cut_overlaps(ops);
  return ops;
}

Nanos end_of_step(const RunResult& run) {
  if (run.measured() == nullptr || run.timeline.empty()) return run.time.step;
  const std::vector<TimedOp> ops = whole_step(run);
  return std::ranges::max(ops, {}, &TimedOp::end).end;
}

}  // namespace mfsdp
