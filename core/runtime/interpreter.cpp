#include "core/runtime/interpreter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/index.hpp"

namespace mfsdp {
namespace {

std::string name_of(const Op& op) { return fmt::format("op {} ({})", op.id.value, op.name); }

}  // namespace

Interpreter::Interpreter(const Program& program, Backend& backend, PoolBases bases,
                         std::int64_t rank, HostWork host_work)
    : program_(program),
      backend_(backend),
      binder_(program, std::move(bases), rank),
      host_work_(std::move(host_work)),
      latest_(event_list(program).size()),
      recorded_(latest_.size(), 0) {}

Result<std::unique_ptr<Interpreter>> Interpreter::create(const Program& program, Backend& backend,
                                                         std::int64_t rank, HostWork host_work) {
  PoolBases bases;
  for (const Pool& pool : program.pools) {
    MFSDP_LET(base, backend.allocate(pool));
    bases.push_back(base);
  }
  std::unique_ptr<Interpreter> made(
      new Interpreter(program, backend, std::move(bases), rank, std::move(host_work)));
  MFSDP_TRY(made->bind_plans());
  return made;
}

Interpreter::~Interpreter() { static_cast<void>(backend_.synchronise()); }

Result<void> Interpreter::bind_plans() {
  for (const Plan& plan : program_.plans) {
    MFSDP_LET(bound, binder_.bind(plan));
    RunnablePlan& runnable = plans_.emplace_back();
    runnable.bound = std::move(bound);
    runnable.runs.resize(runnable.bound.lists.size());
    for (std::size_t l = 0; l < runnable.bound.lists.size(); ++l)
      for (const BoundOp& op : runnable.bound.lists[l].ops)
        if (op.op->kind() == OpKind::record) runnable.lists.emplace(op.op->id, l);
    MFSDP_TRY(find_copied_events(runnable));
  }
  for (const RunnablePlan& plan : plans_) MFSDP_TRY(backend_.prepare(plan.bound));
  return {};
}

/// The host may touch the port of a copy after the next record on the copy's stream has run.
Result<void> Interpreter::find_copied_events(RunnablePlan& plan) const {
  const IdIndex<BufferId> buffers(program_.buffers);
  for (const BoundList& ops : plan.bound.lists) {
    auto& events = plan.copied_events.emplace_back(ops.list.size());
    if (!host_work_) continue;
    for (std::size_t i = 0; i < ops.list.size(); ++i) {
      const BoundOp& op = ops.first_turn(ops.list[i]);
      const auto* copy = std::get_if<Copy>(&op.op->body);
      const Operand* on_host = copy == nullptr ? nullptr : copy->on_host();
      if (on_host == nullptr || !program_.buffers[buffers[on_host->buffer]].is_port()) continue;
      const auto after = ops.list.begin() + static_cast<std::ptrdiff_t>(i);
      const auto record = std::find_if(after, ops.list.end(), [&](const ListedOp& listed) {
        const BoundOp& later = ops.first_turn(listed);
        return later.stream == op.stream && later.op->kind() == OpKind::record;
      });
      if (record == ops.list.end() || record->turns > 1)
        return fail(name_of(*op.op),
                    "copies from or to a port; expected a record later on its stream, of an event "
                    "with one instance, which the host waits for");
      events[i] = ops.first_turn(*record).event;
    }
  }
  return {};
}

void Interpreter::count_from(PlanRole role, std::int64_t step) {
  for (RunnablePlan& plan : plans_)
    if (plan.bound.plan->role() == role) plan.steps = step;
}

Result<void> Interpreter::run(PlanRole role, std::int64_t steps) {
  if (const Plan* plan = program_.find_plan(role)) return run(plan->name, steps);
  return fail("plan", fmt::format("there is no plan of role {} in the program", to_string(role)));
}

Result<void> Interpreter::run(std::string_view name, std::int64_t steps) {
  const auto plan = std::ranges::find_if(
      plans_, [&](const RunnablePlan& candidate) { return candidate.bound.plan->name == name; });
  if (plan == plans_.end())
    return fail("plan", fmt::format("there is no plan \"{}\" in the program", name));
  if (current_ != plan->bound.plan) {
    // All records of the last plan have run: a wait that finds none of its own is satisfied.
    MFSDP_TRY(finish());
    std::ranges::fill(latest_, std::nullopt);
    std::ranges::fill(plan->runs, ListRuns());
    current_ = plan->bound.plan;
  }
  for (std::int64_t i = 0; i < steps; ++i) MFSDP_TRY(run_step(*plan));
  return {};
}

std::optional<Interpreter::CopyRecord> Interpreter::latest_copy(BufferId host_buffer) const {
  for (const RunnablePlan& plan : plans_)
    for (std::size_t l = 0; plan.bound.plan == current_ && l < plan.bound.lists.size(); ++l)
      for (std::size_t i = 0; i < plan.bound.lists[l].list.size(); ++i) {
        const auto event = plan.copied_events[l][i];
        const BoundList& ops = plan.bound.lists[l];
        const BoundOp& op = ops.first_turn(ops.list[i]);
        if (!event || recorded_[*event] == 0) continue;
        const auto& copy = std::get<Copy>(op.op->body);
        if (copy.input.buffer == host_buffer || copy.output.buffer == host_buffer)
          return CopyRecord{.op = &op, .step = plan.steps - 1, .event = *event};
      }
  return std::nullopt;
}

Result<std::optional<Nanos>> Interpreter::copy_ended(BufferId host_buffer) {
  const auto copy = latest_copy(host_buffer);
  if (!copy) return std::optional<Nanos>();
  MFSDP_LET(at, backend_.host_wait(*copy->op, copy->step, copy->event, recorded_[copy->event]));
  return std::optional(at);
}

bool Interpreter::copied_whole(BufferId host_buffer) const {
  const auto copy = latest_copy(host_buffer);
  return copy && backend_.ran_whole(copy->event, recorded_[copy->event]);
}

Result<void> Interpreter::finish() { return backend_.synchronise(); }

Result<void> Interpreter::run_step(RunnablePlan& plan) {
  Place place{.step = plan.steps++, .list = 0, .begun = 0, .lag = 0};
  for (const BoundSegment& segment : plan.bound.segments)
    for (std::int64_t repetition = 0; repetition < segment.repeat; ++repetition) {
      place.begun += segment.microbatches;
      for (const ListCall& call : segment.calls) {
        place.list = call.list;
        place.lag = call.lag_in(repetition);
        MFSDP_TRY(run_list(plan, place));
      }
    }
  return {};
}

Result<void> Interpreter::run_list(RunnablePlan& plan, const Place& place) {
  ++plan.runs[place.list].count;
  plan.runs[place.list].step = place.step;
  const BoundList& ops = plan.bound.lists[place.list];
  for (std::size_t i = 0; i < ops.list.size(); ++i) {
    const BoundOp& op = ops.at(ops.list[i], place.begun, place.lag);
    if (const auto event = plan.copied_events[place.list][i])
      MFSDP_TRY(do_host_work(op, *event, place));
    MFSDP_TRY(issue(plan, op, place));
  }
  return {};
}

Result<void> Interpreter::do_host_work(const BoundOp& op, std::size_t event, const Place& place) {
  std::optional<Nanos> ended;
  if (recorded_[event] > 0)
    MFSDP_SET(ended, backend_.host_wait(op, place.step, event, recorded_[event]));
  return host_work_(op, place.step, ended);
}

Result<void> Interpreter::issue(const RunnablePlan& plan, const BoundOp& op, const Place& place) {
  if (op.op->kind() == OpKind::record) {
    latest_[op.event] = {.op = op.op->id, .list = place.list, .run = plan.runs[place.list].count};
    return backend_.record(op, place.step, ++recorded_[op.event]);
  }
  if (const auto* wait = std::get_if<Wait>(&op.op->body)) {
    MFSDP_LET(number, awaited(plan, *wait, op, place));
    return number == 0 ? Result<void>() : backend_.wait(op, place.step, number);
  }
  if (const auto* wait = std::get_if<HostWait>(&op.op->body)) {
    MFSDP_LET(number, awaited(plan, *wait, op, place));
    if (number > 0) MFSDP_TRY(backend_.host_wait(op, place.step, op.event, number));
    return {};
  }
  return backend_.issue(op, place.step);
}

/// The number of the record that a wait is for: the latest one of its event at this turn, which must
/// be one to which the plan binds the wait. 0 where there is none yet and a binding is to a run of
/// its list before the first.
Result<std::int64_t> Interpreter::awaited(const RunnablePlan& plan, const auto& wait,
                                          const BoundOp& op, const Place& place) const {
  const auto& latest = latest_[op.event];
  const auto binds = [&](auto matches) {
    return std::any_of(wait.bindings.begin(), wait.bindings.end(), matches);
  };
  // The run of a list from which distances are counted (core/plan/op.hpp).
  const auto origin = [&](std::size_t list) {
    return plan.runs[list].count + (plan.runs[list].step < place.step ? 1 : 0);
  };
  if (!latest) {
    if (binds([&](const Binding& binding) {
          const auto list = plan.lists.find(binding.record);
          return list != plan.lists.end() && binding.distance >= origin(list->second);
        }))
      return 0;
    return fail(name_of(*op.op), "waits for a record that no op before it makes");
  }
  const std::int64_t distance = origin(latest->list) - latest->run;
  if (binds([&](const Binding& binding) {
        return binding == Binding{.record = latest->op, .distance = distance};
      }))
    return recorded_[op.event];
  return fail(name_of(*op.op),
              fmt::format("its event's latest record is op {} at distance {}, to which the plan "
                          "does not bind it",
                          latest->op.value, distance));
}

}  // namespace mfsdp
