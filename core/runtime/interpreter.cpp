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
      latest_(program.events.size()),
      recorded_(program.events.size(), 0) {}

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
    plans_.push_back({.bound = std::move(bound), .steps = 0, .copied_events = {}});
    MFSDP_TRY(find_copied_events(plans_.back()));
  }
  for (const RunnablePlan& plan : plans_) MFSDP_TRY(backend_.prepare(plan.bound));
  return {};
}

/// The host may touch the port of a copy after the next record on the copy's stream has run.
Result<void> Interpreter::find_copied_events(RunnablePlan& plan) const {
  const IdIndex<BufferId> buffers(program_.buffers);
  for (const BoundSegment& segment : plan.bound.segments) {
    auto& events = plan.copied_events.emplace_back(segment.ops.size());
    if (!host_work_) continue;
    for (std::size_t i = 0; i < segment.ops.size(); ++i) {
      const auto* copy = std::get_if<Copy>(&segment.ops[i].op->body);
      const Operand* on_host = copy == nullptr ? nullptr : copy->on_host();
      if (on_host == nullptr || !program_.buffers[buffers[on_host->buffer]].is_port()) continue;
      const auto place = segment.ops.begin() + static_cast<std::ptrdiff_t>(i);
      const auto record = std::find_if(place, segment.ops.end(), [&](const BoundOp& op) {
        return op.stream == place->stream && op.op->kind() == OpKind::record;
      });
      if (record == segment.ops.end())
        return fail(name_of(*place->op),
                    "copies from or to a port; expected a record later on its stream, which the "
                    "host waits for");
      events[i] = record->event;
    }
  }
  return {};
}

void Interpreter::count_from(std::string_view name, std::int64_t step) {
  for (RunnablePlan& plan : plans_)
    if (plan.bound.plan->name == name) plan.steps = step;
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
    current_ = plan->bound.plan;
  }
  for (std::int64_t i = 0; i < steps; ++i) MFSDP_TRY(run_step(*plan));
  return {};
}

std::optional<Interpreter::CopyRecord> Interpreter::latest_copy(BufferId host_buffer) const {
  for (const RunnablePlan& plan : plans_)
    for (std::size_t s = 0; plan.bound.plan == current_ && s < plan.bound.segments.size(); ++s)
      for (std::size_t i = 0; i < plan.bound.segments[s].ops.size(); ++i) {
        const auto event = plan.copied_events[s][i];
        const BoundOp& op = plan.bound.segments[s].ops[i];
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
  Place place{.step = plan.steps++, .segment = 0, .repetition = 0};
  for (place.segment = 0; place.segment < plan.bound.segments.size(); ++place.segment) {
    const BoundSegment& segment = plan.bound.segments[place.segment];
    for (place.repetition = 0; place.repetition < segment.repeat; ++place.repetition)
      for (std::size_t i = 0; i < segment.ops.size(); ++i) {
        if (const auto event = plan.copied_events[place.segment][i])
          MFSDP_TRY(do_host_work(segment.ops[i], *event, place));
        MFSDP_TRY(issue(segment.ops[i], place));
      }
  }
  return {};
}

Result<void> Interpreter::do_host_work(const BoundOp& op, std::size_t event, const Place& place) {
  std::optional<Nanos> ended;
  if (recorded_[event] > 0)
    MFSDP_SET(ended, backend_.host_wait(op, place.step, event, recorded_[event]));
  return host_work_(op, place.step, ended);
}

Result<void> Interpreter::issue(const BoundOp& op, const Place& place) {
  if (op.op->kind() == OpKind::record) {
    latest_[op.event] = {.op = op.op->id, .place = place};
    return backend_.record(op, place.step, ++recorded_[op.event]);
  }
  if (const auto* wait = std::get_if<Wait>(&op.op->body)) {
    MFSDP_LET(number, awaited(*wait, op, place));
    return number == 0 ? Result<void>() : backend_.wait(op, place.step, number);
  }
  if (const auto* wait = std::get_if<HostWait>(&op.op->body)) {
    MFSDP_LET(number, awaited(*wait, op, place));
    if (number > 0) MFSDP_TRY(backend_.host_wait(op, place.step, op.event, number));
    return {};
  }
  return backend_.issue(op, place.step);
}

/// The number of the record that a wait is for: the latest of its event, which must be one that
/// the plan binds the wait to. 0 where there is none yet and only earlier steps could have one.
Result<std::int64_t> Interpreter::awaited(const auto& wait, const BoundOp& op,
                                          const Place& place) const {
  const auto& latest = latest_[op.event];
  const auto binds = [&](auto matches) {
    return std::any_of(wait.bindings.begin(), wait.bindings.end(), matches);
  };
  if (!latest) {
    if (binds([](const Binding& binding) { return binding.distance == 1; })) return 0;
    return fail(name_of(*op.op), "waits for a record that no op before it makes");
  }
  const Place& record = latest->place;
  const bool same_instance =
      record.segment == place.segment && record.repetition == place.repetition;
  const std::int64_t distance =
      record.step == place.step && (same_instance || record.segment != place.segment) ? 0 : 1;
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
