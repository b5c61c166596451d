#include "verify/proof/order/unfolded_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "core/plan/index.hpp"
#include "core/plan/instances.hpp"

namespace mfsdp {
namespace {

/// An op is a kilobyte.
constexpr std::int64_t kMostOps = 200'000;
constexpr Int128 kMostRuns = 1'000'000;  ///< of segments and passes in a step
constexpr Int128 kMostThings = 200'000;  ///< buffers, or events
/// Runs whose microbatches are further apart share no variant.
constexpr std::int64_t kLongestPeriod = std::int64_t{1} << 40;

/// New ids follow the largest one.
constexpr std::uint32_t kLargestId = std::uint32_t{1} << 31;

template <class Key>
struct Instances {
  std::unordered_map<Key, std::vector<Key>> of;  ///< by the id in the program

  [[nodiscard]] Key at(Key id, std::int64_t microbatch) const {
    const std::vector<Key>& all = of.at(id);
    return all[static_cast<std::size_t>(instance_of(microbatch, 0, std::ssize(all)))];
  }
};

std::int64_t common_multiple(std::int64_t a, std::int64_t b) {
  const std::int64_t factor = b / std::gcd(a, b);
  return factor > kLongestPeriod / a ? kLongestPeriod : a * factor;
}

template <class T>
Int128 count_instances(const std::vector<T>& list) {
  Int128 count = 0;
  for (const T& thing : list) count += thing.instances.value_or(1);
  return count;
}

template <class T>
std::uint32_t first_free_id(const std::vector<T>& list) {
  std::uint32_t largest = 0;
  for (const T& thing : list) largest = std::max(largest, thing.id.value);
  return largest < kLargestId ? largest + 1 : kLargestId + 1;
}

/// How much of a segment is run.
struct Extent {
  std::int64_t kept = 1;    ///< repetitions
  std::int64_t period = 1;  ///< repetitions after which all instances begin again
};
using Extents = std::vector<Extent>;  ///< by segment

/// Microbatches after which all instances of the program begin again.
std::int64_t common_rotation(const Program& program) {
  std::int64_t rotation = 1;
  const auto add = [&](const auto& list) {
    for (const auto& thing : list)
      rotation = common_multiple(rotation, thing.instances.value_or(1));
  };
  add(program.buffers);
  add(program.events);
  return rotation;
}

/// The furthest microbatch before the newest that an op of the plan works on.
std::int64_t largest_lag(const Plan& plan) {
  std::int64_t largest = 0;
  for (std::size_t s = 0; s < plan.segments.size(); ++s)
    for (const ListCall& call : calls_of(plan, s)) {
      const std::int64_t of_call =
          std::max(call.lag_in(0), call.lag_in(plan.segments[s].repeat - 1));
      for (const Op& op : op_list(plan, call.list)) largest = std::max(largest, of_call + op.lag);
    }
  return largest;
}

Extents all_repetitions(const Plan& plan) {
  Extents extents;
  for (const Segment& segment : plan.segments) extents.push_back({.kept = segment.repeat});
  return extents;
}

/// A segment whose lags change from one repetition to the next has all its repetitions.
Extents enough_repetitions(const Program& program, const Plan& plan) {
  const std::int64_t rotation = common_rotation(program);
  const std::int64_t lag = largest_lag(plan);
  Extents extents = all_repetitions(plan);
  for (std::size_t s = 0; s < extents.size(); ++s) {
    const Segment& segment = plan.segments[s];
    const auto changes = [](const PassCall& call) { return call.lag_step != 0; };
    if (std::ranges::any_of(segment.calls, changes)) continue;
    if (segment.microbatches < 1 && lag > 0) continue;
    const std::int64_t period = rotation / std::gcd(rotation, segment.microbatches);
    const std::int64_t reach = lag == 0 ? 0 : (lag - 1) / segment.microbatches + 1;
    const Int128 enough = Int128{2} * period + reach;
    if (segment.repeat <= enough) continue;
    const auto periods = static_cast<std::int64_t>((segment.repeat - enough) / period);
    extents[s] = {.kept = segment.repeat - periods * period, .period = period};
  }
  return extents;
}

Result<void> check_size(const Program& program, const std::vector<Extents>& extents) {
  if (first_free_id(program.buffers) > kLargestId || first_free_id(program.events) > kLargestId)
    return fail(
        "plans",
        fmt::format("expected ids below {} in a program with instances of buffers or events",
                    kLargestId));
  Int128 runs = 0;
  for (std::size_t p = 0; p < extents.size(); ++p)
    for (std::size_t s = 0; s < extents[p].size(); ++s)
      runs += Int128{std::ssize(program.plans[p].segments[s].calls) + 1} * extents[p][s].kept;
  if (runs > kMostRuns)
    return fail("plans", fmt::format("expected at most {} runs of segments and passes in a program "
                                     "with instances of buffers or events",
                                     static_cast<std::int64_t>(kMostRuns)));
  if (count_instances(program.buffers) > kMostThings ||
      count_instances(program.events) > kMostThings)
    return fail("buffers", fmt::format("expected at most {} instances in all",
                                       static_cast<std::int64_t>(kMostThings)));
  return {};
}

/// Calls visit(id) for each buffer and event that an op names, with a reference to the id. Each
/// body is listed here once.
void for_each_name(OpBody& body, auto visit) {
  const auto operand = [&](Operand& named) {
    if (named.stated()) visit(named.buffer);
  };
  std::visit(
      [&](auto& of) {
        using Body = std::decay_t<decltype(of)>;
        if constexpr (std::is_same_v<Body, Kernel>) {
          std::ranges::for_each(of.operands, operand);
        } else if constexpr (std::is_same_v<Body, Collective> || std::is_same_v<Body, Copy>) {
          operand(of.input);
          operand(of.output);
        } else if constexpr (std::is_same_v<Body, Acquire> || std::is_same_v<Body, Release>) {
          visit(of.buffer);
        } else if constexpr (requires { of.event; }) {
          visit(of.event);
        }
      },
      body);
}

/// The instances of one rank's buffers and events.
struct Rotation {
  Instances<BufferId> buffers;
  Instances<EventId> events;

  [[nodiscard]] BufferId at(BufferId id, std::int64_t microbatch) const {
    return buffers.at(id, microbatch);
  }
  [[nodiscard]] EventId at(EventId id, std::int64_t microbatch) const {
    return events.at(id, microbatch);
  }
  [[nodiscard]] std::int64_t count(BufferId id) const { return std::ssize(buffers.of.at(id)); }
  [[nodiscard]] std::int64_t count(EventId id) const { return std::ssize(events.of.at(id)); }
};

/// Unfolds one plan.
class PlanUnfolder {
 public:
  /// `has_live`: segments state what is live at their ends.
  PlanUnfolder(const Plan& plan, const Extents& extents, const Rotation& rotation, bool has_live,
               UnfoldedProgram& out)
      : plan_(plan), extents_(extents), rotation_(rotation), has_live_(has_live), out_(out) {
    for (std::size_t list = 0; list < count_op_lists(plan); ++list)
      periods_.push_back(period_of(op_list(plan, list)));
    made_.name = plan.name;
    made_.stated_role = plan.stated_role;
  }

  Result<Plan> unfold() {
    std::vector<SegmentRun>& runs = out_.runs.emplace_back();
    std::int64_t begun = 0;
    for (std::size_t s = 0; s < plan_.segments.size(); ++s) {
      const Segment& segment = plan_.segments[s];
      const std::vector<ListCall> calls = calls_of(plan_, s);
      const bool changes = segment.live_in != segment.live_out;
      const auto [kept, period] = extents_[s];
      const std::int64_t left_out = segment.repeat - kept;
      const std::int64_t cut = kept - period;  // the last period is that of the segment's end
      for (std::int64_t run = 0; run < kept; ++run) {
        begun += segment.microbatches;
        runs.push_back({.segment = s,
                        .repetition = run < cut ? run : run + left_out,
                        .times = run + 1 == cut ? 1 + left_out : 1});
        Segment unfolded;
        unfolded.name = segment.name;
        unfolded.microbatches = segment.microbatches;
        if (has_live_) unfolded.live_in = changes && run > 0 ? all_live() : live(segment.live_in);
        for (const ListCall& call : calls) {
          const std::int64_t lag = call.lag_in(runs.back().repetition);
          MFSDP_LET(pass, variant_of(call.list, begun - lag));
          unfolded.calls.push_back({.pass = pass, .lag = lag});
        }
        if (has_live_)
          unfolded.live_out = changes && run + 1 < kept ? all_live() : live(segment.live_out);
        made_.segments.push_back(std::move(unfolded));
      }
    }
    return std::move(made_);
  }

 private:
  /// An acquire or a release.
  struct Life {
    BufferId buffer;
    bool begins = false;
  };

  [[nodiscard]] std::int64_t period_of(const std::vector<Op>& ops) const {
    std::int64_t period = 1;
    for (const Op& op : ops) {
      OpBody body = op.body;
      for_each_name(body, [&](auto id) { period = common_multiple(period, rotation_.count(id)); });
    }
    return period;
  }

  /// The variant of a list whose call works on that microbatch, counted from 1.
  Result<PassId> variant_of(std::size_t list, std::int64_t microbatch) {
    const std::int64_t variant = instance_of(microbatch, 0, periods_[list]);
    const auto [known, is_new] = passes_.try_emplace({list, variant}, PassId(made_.passes.size()));
    const PassId id = known->second;
    if (is_new) {
      const std::vector<Op>& ops = op_list(plan_, list);
      ops_ += std::ssize(ops);
      if (ops_ > kMostOps)
        return fail(
            "plans",
            fmt::format("expected at most {} ops in all variants of passes in a program with "
                        "instances of buffers or events",
                        kMostOps));
      Pass& made = made_.passes.emplace_back();
      made.id = id;
      made.name = list_name(plan_, list);
      made.ops = ops;
      std::vector<Life>& lives = lives_.emplace_back();
      for (Op& op : made.ops) {
        for_each_name(op.body,
                      [&](auto& named) { named = rotation_.at(named, microbatch - op.lag); });
        if (const auto* acquire = std::get_if<Acquire>(&op.body))
          lives.push_back({.buffer = acquire->buffer, .begins = true});
        if (const auto* release = std::get_if<Release>(&op.body))
          lives.push_back({.buffer = release->buffer});
      }
    }
    for (std::size_t i = 0; has_live_ && i < lives_[id.value].size(); ++i) {
      const Life& life = lives_[id.value][i];
      std::set<BufferId>& alive = live_[first_of(life.buffer)];
      if (life.begins)
        alive.insert(life.buffer);
      else
        alive.erase(life.buffer);
    }
    return id;
  }

  [[nodiscard]] BufferId first_of(BufferId instance) const {
    const auto found = out_.buffers.find(instance);
    return found == out_.buffers.end() ? instance : found->second;
  }

  [[nodiscard]] std::vector<BufferId> all_live() const {
    std::vector<BufferId> all;
    for (const auto& [first, alive] : live_) all.insert(all.end(), alive.begin(), alive.end());
    std::ranges::sort(all);
    return all;
  }

  /// As many instances as the program states, first those that are live.
  [[nodiscard]] std::vector<BufferId> live(const std::vector<BufferId>& stated) const {
    std::map<BufferId, std::size_t> counts;
    for (const BufferId id : stated) ++counts[id];
    std::vector<BufferId> made;
    for (const auto& [id, count] : counts) {
      std::vector<BufferId> all = rotation_.buffers.of.at(id);
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
  const Extents& extents_;
  const Rotation& rotation_;
  bool has_live_;
  UnfoldedProgram& out_;
  Plan made_;
  std::vector<std::int64_t> periods_;  ///< by list of ops: microbatches after which it repeats
  std::map<std::pair<std::size_t, std::int64_t>, PassId> passes_;  ///< by list and variant
  std::vector<std::vector<Life>> lives_;                           ///< by variant
  std::map<BufferId, std::set<BufferId>> live_;  ///< instances, by the id in the program
  std::int64_t ops_ = 0;                         ///< of all variants
};

Instances<BufferId> unfold_buffers(const Program& program, UnfoldedProgram& out) {
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

Instances<EventId> unfold_events(const Program& program, UnfoldedProgram& out) {
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

bool has_rotation(const Program& program) {
  return common_rotation(program) > 1 ||
         std::ranges::any_of(program.plans, [](const Plan& plan) { return largest_lag(plan) > 0; });
}

void UnfoldedProgram::restore(Finding& finding) const {
  if (finding.buffer)
    if (const auto found = buffers.find(*finding.buffer); found != buffers.end())
      finding.buffer = found->second;
}

Result<UnfoldedProgram> unfolded_program(const Program& program, Repetitions repetitions) {
  std::vector<Extents> extents;
  for (const Plan& plan : program.plans)
    extents.push_back(repetitions == Repetitions::all ? all_repetitions(plan)
                                                      : enough_repetitions(program, plan));
  MFSDP_TRY(check_size(program, extents));
  UnfoldedProgram out{.program = program};
  out.program.buffers.clear();
  out.program.events.clear();
  out.program.plans.clear();
  const Rotation rotation{.buffers = unfold_buffers(program, out),
                          .events = unfold_events(program, out)};
  for (std::size_t p = 0; p < extents.size(); ++p) {
    MFSDP_LET(unfolded, PlanUnfolder(program.plans[p], extents[p], rotation,
                                     repetitions != Repetitions::all, out)
                            .unfold());
    out.program.plans.push_back(std::move(unfolded));
  }
  return out;
}

}  // namespace mfsdp
