#include "verify/proof/order/expand_instances.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/plan/index.hpp"
#include "core/plan/rotation.hpp"

namespace mfsdp {
namespace {

/// An op is a kilobyte.
constexpr Int128 kMostOps = 200'000;
constexpr Int128 kMostThings = 200'000;  ///< buffers, or events

template <class Key>
struct Instances {
  std::unordered_map<Key, std::vector<Key>> of;  ///< by the id in the program

  [[nodiscard]] Key at(Key id, std::int64_t begun, std::int64_t lag) const {
    const std::vector<Key>& all = of.at(id);
    return all[static_cast<std::size_t>(instance_of(begun, lag, std::ssize(all)))];
  }
};

template <class T>
Int128 count_instances(const std::vector<T>& list) {
  Int128 count = 0;
  for (const T& thing : list) count += thing.instances.value_or(1);
  return count;
}

/// New ids follow the largest one.
constexpr std::uint32_t kLargestId = std::uint32_t{1} << 31;

template <class T>
std::uint32_t first_free_id(const std::vector<T>& list) {
  std::uint32_t largest = 0;
  for (const T& thing : list) largest = std::max(largest, thing.id.value);
  return largest < kLargestId ? largest + 1 : kLargestId + 1;
}

Result<void> check_size(const Program& program) {
  Int128 ops = 0;
  bool fit =
      first_free_id(program.buffers) <= kLargestId && first_free_id(program.events) <= kLargestId;
  for (const Plan& plan : program.plans)
    for (const Segment& segment : plan.segments) {
      ops += Int128{std::ssize(segment.ops) + 1} * segment.repeat;
      fit = fit && first_free_id(segment.ops) <= kLargestId;
    }
  if (!fit)
    return fail(
        "plans",
        fmt::format("expected ids below {} in a program with instances of buffers or events",
                    kLargestId));
  if (ops > kMostOps)
    return fail("plans", fmt::format("expected at most {} ops in all repetitions of a program with "
                                     "instances of buffers or events",
                                     static_cast<std::int64_t>(kMostOps)));
  if (count_instances(program.buffers) > kMostThings ||
      count_instances(program.events) > kMostThings)
    return fail("buffers", fmt::format("expected at most {} instances in all",
                                       static_cast<std::int64_t>(kMostThings)));
  return {};
}

/// Expands one plan.
class PlanExpander {
 public:
  PlanExpander(const Plan& plan, const Instances<BufferId>& buffers,
               const Instances<EventId>& events, std::uint32_t& next_op, ExpandedProgram& out)
      : plan_(plan), buffers_(buffers), events_(events), next_op_(next_op), out_(out) {
    for (std::size_t s = 0; s < plan.segments.size(); ++s)
      for (const Op& op : plan.segments[s].ops) segment_of_.emplace(op.id, s);
    runs_.assign(plan.segments.size(), 0);
    name_runs();
  }

  Plan write() {
    Plan made{.name = plan_.name, .segments = {}};
    for (segment_ = 0; segment_ < plan_.segments.size(); ++segment_) {
      const Segment& segment = plan_.segments[segment_];
      for (run_ = 0; run_ < segment.repeat; ++run_) {
        begun_ += segment.microbatches;
        ++runs_[segment_];
        Segment& expanded = made.segments.emplace_back();
        expanded.name = segment.name;
        expanded.microbatches = segment.microbatches;
        expanded.live_in = live(segment.live_in);
        for (const Op& op : segment.ops) expanded.ops.push_back(write(op));
        expanded.live_out = live(segment.live_out);
      }
    }
    return made;
  }

 private:
  /// Ids of all runs of all ops: bindings name later ones too.
  void name_runs() {
    for (const Segment& segment : plan_.segments)
      for (std::int64_t run = 0; run < segment.repeat; ++run)
        for (const Op& op : segment.ops) {
          std::vector<OpId>& ids = ids_[op.id];
          ids.push_back(run == 0 ? op.id : OpId(next_op_++));
          if (run > 0) out_.ops.emplace(ids.back(), ExpandedProgram::Origin{op.id, run});
        }
  }

  Op write(const Op& op) {
    Op made = op;
    made.id = ids_.at(op.id)[static_cast<std::size_t>(run_)];
    if (run_ > 0) made.name += fmt::format("[{}]", run_);
    lag_ = op.lag;
    std::visit([this](auto& body) { turn(body); }, made.body);
    return made;
  }

  [[nodiscard]] BufferId now(BufferId id) const { return buffers_.at(id, begun_, lag_); }
  void turn(Operand& operand) const {
    if (operand.stated()) operand.buffer = now(operand.buffer);
  }
  void turn(EventId& event) const { event = events_.at(event, begun_, lag_); }

  void turn(Kernel& kernel) {
    for (Operand& operand : kernel.operands) turn(operand);
  }
  void turn(Collective& collective) {
    turn(collective.input);
    turn(collective.output);
  }
  void turn(Copy& copy) {
    turn(copy.input);
    turn(copy.output);
  }
  void turn(Acquire& acquire) {
    acquire.buffer = now(acquire.buffer);
    live_[first_of(acquire.buffer)].insert(acquire.buffer);
  }
  void turn(Release& release) {
    release.buffer = now(release.buffer);
    live_[first_of(release.buffer)].erase(release.buffer);
  }
  void turn(Record& record) { turn(record.event); }
  void turn(Wait& wait) { turn_wait(wait); }
  void turn(HostWait& wait) { turn_wait(wait); }
  void turn(GroupBegin&) {}
  void turn(GroupEnd&) {}

  void turn_wait(auto& wait) {
    turn(wait.event);
    for (Binding& binding : wait.bindings) binding = bind(binding);
  }

  /// The run to which the binding refers, and how many steps before this one. In the expanded plan,
  /// where each segment runs once in a step, that is its distance.
  [[nodiscard]] Binding bind(const Binding& binding) const {
    const std::size_t s = segment_of_.at(binding.record);
    const std::int64_t repeat = plan_.segments[s].repeat;
    const std::int64_t not_come_to = runs_[s] == 0 ? 1 : 0;
    std::int64_t run = runs_[s] - 1 - binding.distance + not_come_to;  // of this step
    const std::int64_t steps = run < 0 ? (-run + repeat - 1) / repeat : 0;
    run += steps * repeat;
    return {.record = ids_.at(binding.record)[static_cast<std::size_t>(std::min(run, repeat - 1))],
            .distance = steps};
  }

  [[nodiscard]] BufferId first_of(BufferId instance) const {
    const auto found = out_.buffers.find(instance);
    return found == out_.buffers.end() ? instance : found->second;
  }

  /// As many instances as the program states, first those that are live.
  [[nodiscard]] std::vector<BufferId> live(const std::vector<BufferId>& stated) const {
    std::map<BufferId, std::size_t> counts;
    for (const BufferId id : stated) ++counts[id];
    std::vector<BufferId> made;
    for (const auto& [id, count] : counts) {
      std::vector<BufferId> all = buffers_.of.at(id);
      const auto live_now = live_.find(id);
      if (live_now != live_.end())
        std::ranges::stable_partition(all,
                                      [&](BufferId i) { return live_now->second.contains(i); });
      made.insert(made.end(), all.begin(),
                  all.begin() + static_cast<std::ptrdiff_t>(std::min(count, all.size())));
      made.insert(made.end(), count - std::min(count, all.size()), id);
    }
    std::ranges::sort(made);
    return made;
  }

  const Plan& plan_;
  const Instances<BufferId>& buffers_;
  const Instances<EventId>& events_;
  std::uint32_t& next_op_;
  ExpandedProgram& out_;
  std::unordered_map<OpId, std::size_t> segment_of_;
  std::unordered_map<OpId, std::vector<OpId>> ids_;  ///< by run
  std::map<BufferId, std::set<BufferId>> live_;      ///< instances, by the id in the program
  std::vector<std::int64_t> runs_;                   ///< by segment: begun in this step
  std::int64_t begun_ = 0;                           ///< microbatches
  std::size_t segment_ = 0;                          ///< that is written
  std::int64_t run_ = 0;
  std::int64_t lag_ = 0;  ///< of the op that is written
};

Instances<BufferId> write_buffers(const Program& program, ExpandedProgram& out) {
  const IdIndex<PoolId> pools(program.pools);
  std::uint32_t next = first_free_id(program.buffers);
  Instances<BufferId> made;
  for (const Buffer& buffer : program.buffers) {
    std::vector<BufferId>& ids = made.of[buffer.id];
    for (std::int64_t i = 0; i < buffer.instances.value_or(1); ++i) {
      Buffer& instance = out.program.buffers.emplace_back(buffer);
      instance.instances.reset();
      if (i > 0) {
        instance.id = BufferId(next++);
        instance.name += fmt::format("[{}]", i);
        instance.offset += instance_pitch(buffer, program.pools[pools[buffer.pool]]) * i;
        out.buffers.emplace(instance.id, buffer.id);
      }
      ids.push_back(instance.id);
    }
  }
  return made;
}

Instances<EventId> write_events(const Program& program, ExpandedProgram& out) {
  std::uint32_t next = first_free_id(program.events);
  Instances<EventId> made;
  for (const Event& event : program.events)
    for (std::int64_t i = 0; i < event.instances.value_or(1); ++i) {
      out.program.events.push_back(
          {.id = i == 0 ? event.id : EventId(next++),
           .name = i == 0 ? event.name : fmt::format("{}[{}]", event.name, i)});
      made.of[event.id].push_back(out.program.events.back().id);
    }
  return made;
}

}  // namespace

bool has_instances(const Program& program) {
  const auto rotates = [](const auto& thing) { return thing.instances.has_value(); };
  return std::ranges::any_of(program.buffers, rotates) ||
         std::ranges::any_of(program.events, rotates);
}

void ExpandedProgram::restore(Finding& finding) const {
  const auto name = [&](Place& place) {
    const auto found = ops.find(place.op);
    if (found == ops.end()) return;
    place.op = found->second.op;
    place.repetition = found->second.repetition;
  };
  std::ranges::for_each(finding.places, name);
  std::ranges::for_each(finding.interleaving, name);
  if (finding.buffer)
    if (const auto found = buffers.find(*finding.buffer); found != buffers.end())
      finding.buffer = found->second;
}

std::vector<OpId> ExpandedProgram::redundant_waits(const std::vector<OpId>& of_runs) const {
  std::map<OpId, std::int64_t> needed;  // runs that are not among these
  for (const auto& [id, origin] : ops) ++needed[origin.op];
  std::set<OpId> found;
  for (const OpId id : of_runs) {
    const auto origin = ops.find(id);
    found.insert(origin == ops.end() ? id : origin->second.op);
    --needed[origin == ops.end() ? id : origin->second.op];
  }
  std::vector<OpId> waits;
  // The first run keeps its id and is not counted above.
  for (const OpId id : found)
    if (needed[id] == -1) waits.push_back(id);
  return waits;
}

Result<ExpandedProgram> expand_instances(const Program& program) {
  MFSDP_TRY(check_size(program));
  ExpandedProgram out{.program = program};
  out.program.buffers.clear();
  out.program.events.clear();
  out.program.plans.clear();
  const Instances<BufferId> buffers = write_buffers(program, out);
  const Instances<EventId> events = write_events(program, out);
  std::uint32_t next_op = 0;
  for (const Plan& plan : program.plans)
    for (const Segment& segment : plan.segments)
      next_op = std::max(next_op, first_free_id(segment.ops));
  for (const Plan& plan : program.plans)
    out.program.plans.push_back(PlanExpander(plan, buffers, events, next_op, out).write());
  return out;
}

}  // namespace mfsdp
