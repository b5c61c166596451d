#include "gpu_backend/cuda/prepared_plans.hpp"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <utility>

#include "gpu_backend/cuda/op_timer.hpp"

namespace mfsdp::cuda {

Result<void> PreparedPlans::add(const BoundPlan& plan, bool timed, const BindOp& bind) {
  std::int64_t plan_ops = 0;
  for (const BoundList& list : plan.lists) plan_ops += std::ssize(list.ops);
  std::map<std::size_t, const BoundOp*> last;  // by stream: the latest op that takes its time
  std::int64_t first = 0;
  for (const BoundList& list : plan.lists) {
    PreparedList& into = lists_.emplace_back();
    into.bound = list.ops;
    into.timed = timed;
    into.first = first;
    into.plan_ops = plan_ops;
    first += std::ssize(list.ops);
    into.ops.reserve(list.ops.size());
    for (const BoundOp& op : list.ops) {
      auto launch = bind(op);
      if (!launch)
        return fail(
            fmt::format("plan \"{}\", op {} ({})", plan.plan->name, op.op->id.value, op.op->name),
            launch.error().message(), launch.error().fault);
      const OpKind kind = op.op->kind();
      into.ops.push_back({.launch = std::move(*launch),
                          .work = kind == OpKind::record ? last[op.stream] : nullptr});
      if (OpTimer::times(*op.op) && kind != OpKind::host_wait) last[op.stream] = &op;
    }
  }
  return {};
}

std::optional<PreparedPlace> PreparedPlans::find(const BoundOp& op) const {
  const std::less<> before;
  for (const PreparedList& list : lists_) {
    const BoundOp* first = list.bound.data();
    if (!before(&op, first) && before(&op, first + list.bound.size()))
      return PreparedPlace{.list = &list, .position = static_cast<std::size_t>(&op - first)};
  }
  return std::nullopt;
}

}  // namespace mfsdp::cuda
