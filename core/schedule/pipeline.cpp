#include "core/schedule/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "core/plan/instances.hpp"
#include "core/plan/live_buffers.hpp"
#include "core/plan/pipeline_order.hpp"
#include "core/schedule/microbatch.hpp"
#include "core/schedule/optimizer.hpp"
#include "core/schedule/stage.hpp"

namespace mfsdp::schedule {
namespace {

/// Calls of a stage's passes, while `microbatches` begin in each of the repetitions.
struct CalledPasses {
  std::int64_t microbatches = 0;
  std::int64_t repeat = 1;
  std::vector<PassCall> calls{};
};

/// The same calls, each one microbatch later than in the last repetition.
bool continues(const CalledPasses& last, const CalledPasses& next) {
  return last.microbatches == 0 && next.microbatches == 0 &&
         std::ranges::equal(last.calls, next.calls, [&](const PassCall& a, const PassCall& b) {
           return a.pass == b.pass && a.lag - last.repeat == b.lag;
         });
}

/// Whether tensors cross at forward's end of a chunk or at backward's.
std::size_t end_of(PipelinePart part) { return part == PipelinePart::forward ? 0 : 1; }

/// The passes of a chunk. Those of backward differ in what they do with sums of gradients. Receives
/// and sends by part: forward, backward.
struct PassesOfChunk {
  std::array<std::optional<PassId>, 2> receive{};
  std::array<std::optional<PassId>, 2> send{};
  PassId forward{};
  std::array<PassId, 3> backward{};  ///< of the first, the middle and the last microbatch
  std::array<PassId, 3> weights{};   ///< likewise, late weight gradients
};

/// One stage under construction.
class StageBuilder {
 public:
  StageBuilder(Program& program, const PipelineStage& stage, const Model& model,
               const FamilyRecipe& family, std::vector<PipelineLaunch> launches)
      : program_(program),
        emitter_(program),
        state_(emitter_, model, stage),
        launches_(std::move(launches)) {
    for (std::size_t c = 0; c < stage.chunks.size(); ++c) {
      chunks_.emplace_back(emitter_, state_, family, true, c);
      ends_.push_back(ends_of(static_cast<std::int64_t>(c)));
    }
  }

  [[nodiscard]] const MicrobatchSchedule& chunk(std::size_t c) const { return chunks_[c]; }
  [[nodiscard]] MicrobatchSchedule::Ends& ends(std::size_t c) { return ends_[c]; }

  void emit() {
    program_.plans.push_back({.name = std::string(to_string(PlanRole::train)), .segments = {}});
    for (std::size_t c = 0; c < chunks_.size(); ++c)
      if (!reads_tokens_ && chunks_[c].reads_tokens()) reads_tokens_ = c;
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      ends_[c].releases_tokens = reads_tokens_ == c;
      chunks_[c].set_ends(ends_[c]);
    }
    if (reads_tokens_) {
      tokens_ = emitter_.begin_pass("tokens");
      emitter_.rotate(state_.tokens, tokens_in_flight());
      chunks_[*reads_tokens_].emit_input();
    }
    for (std::size_t c = 0; c < chunks_.size(); ++c) make_passes(c);
    add_segments();
    emitter_.begin_segment("optimizer", 1, 0);
    if (state_.stage.is_last()) emit_loss(emitter_, state_, "", true);
    emit_optimizer(emitter_, state_);
    state_live_buffers(program_.plans.back());
  }

 private:
  /// How many microbatches a chunk has in flight.
  [[nodiscard]] MicrobatchSchedule::Ends ends_of(std::int64_t chunk) const {
    using enum PipelinePart;
    const auto most = [&](LaunchSpan begin, LaunchSpan end) {
      return std::max<std::int64_t>(1, most_between(launches_, chunk, begin, end));
    };
    const auto at = [](LaunchKind kind, PipelinePart part) {
      return LaunchSpan{.kind = kind, .part = part};
    };
    MicrobatchSchedule::Ends ends{.microbatches = program_.config.microbatches};
    const PipelinePart back = part_with_input_gradients();
    const PipelinePart last = weights_wait() ? weight_gradients : backward;
    ends.in_flight = most(at(LaunchKind::action, forward), at(LaunchKind::action, back));
    ends.until_weights = most(at(LaunchKind::action, forward), at(LaunchKind::action, last));
    ends.gradients_until_weights = most(at(LaunchKind::action, back), at(LaunchKind::action, last));
    ends.inputs_in_flight = most(at(LaunchKind::receive, forward), at(LaunchKind::action, last));
    for (const PipelinePart part : {forward, back}) {
      const bool sends = std::ranges::any_of(launches_, [&](const PipelineLaunch& launch) {
        return launch == PipelineLaunch{.kind = LaunchKind::send,
                                        .of = {.part = part, .microbatch = 0, .chunk = chunk}};
      });
      ends.received_before[end_of(part)] = most(
          at(LaunchKind::receive, part), at(sends ? LaunchKind::send : LaunchKind::action, part));
    }
    return ends;
  }

  [[nodiscard]] bool weights_wait() const {
    return program_.config.schedule == PipelineSchedule::zb_h1;
  }

  /// The part of backward that makes the gradient of a chunk's inputs.
  [[nodiscard]] PipelinePart part_with_input_gradients() const {
    return weights_wait() ? PipelinePart::input_gradients : PipelinePart::backward;
  }

  void make_passes(std::size_t chunk) {
    MicrobatchSchedule& schedule = chunks_[chunk];
    const std::string of = chunks_.size() > 1 ? fmt::format(".{}", chunk) : "";
    PassesOfChunk& made = passes_.emplace_back();
    const auto has = [&](const auto& tensors, PipelinePart part) {
      return !tensors[end_of(part)].empty();
    };
    const auto receives = [&](PipelinePart part, const char* name) {
      if (!has(ends_[chunk].received, part)) return;
      made.receive[end_of(part)] = emitter_.begin_pass(name + of);
      schedule.emit_receives(part);
    };
    const auto sends = [&](PipelinePart part, const char* name) {
      if (!has(ends_[chunk].sent, part)) return;
      made.send[end_of(part)] = emitter_.begin_pass(name + of);
      schedule.emit_sends(part);
    };
    receives(PipelinePart::forward, "receive");
    made.forward = emitter_.begin_pass("forward" + of);
    schedule.emit_pass(PipelinePart::forward, {});
    sends(PipelinePart::forward, "send");
    receives(PipelinePart::backward, "receive_gradient");
    made.backward = backwards(schedule, PipelinePart::backward, "backward" + of);
    if (weights_wait())
      made.weights = backwards(schedule, PipelinePart::weight_gradients, "weights" + of);
    sends(PipelinePart::backward, "send_gradient");
  }

  /// The passes of a part of backward.
  [[nodiscard]] std::array<PassId, 3> backwards(MicrobatchSchedule& schedule, PipelinePart part,
                                                const std::string& name) {
    const auto make = [&](const std::string& named, Position position) {
      const PassId pass = emitter_.begin_pass(named);
      schedule.emit_pass(part, position);
      return pass;
    };
    const std::int64_t microbatches = program_.config.microbatches;
    const bool is_one = microbatches == 1;
    const PassId first = make(is_one ? name : "first_" + name, {.first = true, .last = is_one});
    if (is_one) return {first, first, first};
    PassId middle = first;
    if (microbatches > 2) {
      MicrobatchSchedule::Carry before;
      before = schedule.carry();
      middle = make(name, {.first = false, .last = false});
      if (schedule.carry() != before)
        throw std::logic_error("a middle microbatch does not end as it begins");
    }
    return {first, middle, make("last_" + name, {.first = false, .last = true})};
  }

  [[nodiscard]] const PassesOfChunk& of_chunk(const PipelineAction& action) const {
    return passes_[static_cast<std::size_t>(action.chunk)];
  }

  [[nodiscard]] bool is_backward(PassId pass) const {
    return std::ranges::any_of(passes_, [&](const PassesOfChunk& of) {
      return std::ranges::find(of.backward, pass) != of.backward.end();
    });
  }

  [[nodiscard]] PassId pass_of(const PipelineLaunch& launch) const {
    const PipelineAction& action = launch.of;
    const PassesOfChunk& of = of_chunk(action);
    const std::size_t part = end_of(action.part);
    if (launch.kind == LaunchKind::receive) return of.receive[part].value();
    if (launch.kind == LaunchKind::send) return of.send[part].value();
    if (action.part == PipelinePart::forward) return of.forward;
    const auto& backward = action.part == PipelinePart::weight_gradients ? of.weights : of.backward;
    if (action.microbatch == 0) return backward[0];
    return backward[action.microbatch + 1 == program_.config.microbatches ? 2 : 1];
  }

  /// Microbatches that have begun, and that the first chunk that reads tokens, which is the last one in
  /// backward, has not ended.
  [[nodiscard]] std::int64_t tokens_in_flight() const {
    std::int64_t most = 0;
    std::int64_t begun = 0;
    std::int64_t ended = 0;
    for (const PipelineLaunch& launch : launches_) {
      begun += begins(launch, begun);
      most = std::max(most, begun - ended);
      if (launch.kind == LaunchKind::action && launch.of.part == part_with_input_gradients() &&
          launch.of.chunk == static_cast<std::int64_t>(*reads_tokens_))
        ++ended;
    }
    return most;
  }

  /// Microbatches that begin with a launch: with several chunks a group of them.
  [[nodiscard]] std::int64_t begins(const PipelineLaunch& launch, std::int64_t begun) const {
    const PipelineShape shape = pipeline_shape(program_.config);
    std::int64_t group = 1;
    if (shape.chunks > 1) group = shape.group > 0 ? shape.group : shape.stages;
    const PipelineAction& of = launch.of;
    if (of.part != PipelinePart::forward || of.chunk != 0 || of.microbatch != begun) return 0;
    return std::min(group, shape.microbatches - begun);
  }

  /// Calls until the next microbatch begins, or with several chunks the next group of them. The
  /// lags of a list count from its last microbatch.
  [[nodiscard]] std::vector<CalledPasses> lists_of_calls() const {
    std::vector<CalledPasses> lists;
    std::int64_t begun = 0;
    for (const PipelineLaunch& launch : launches_) {
      if (const std::int64_t fresh = begins(launch, begun); fresh > 0) {
        lists.push_back({.microbatches = fresh});
        begun += fresh;
        for (std::int64_t lag = fresh; tokens_ && lag-- > 0;)
          lists.back().calls.push_back({.pass = *tokens_, .lag = lag});
      }
      lists.back().calls.push_back(
          {.pass = pass_of(launch), .lag = begun - 1 - launch.of.microbatch});
    }
    return lists;
  }

  /// Equal lists are repetitions. The calls that the last one has more than the one before drain the
  /// pipeline, by lists that end with a backward.
  [[nodiscard]] std::vector<CalledPasses> segments() const {
    std::vector<CalledPasses> lists = lists_of_calls();
    if (lists.size() > 1) {
      std::vector<PassCall>& last = lists.back().calls;
      const auto kept =
          static_cast<std::ptrdiff_t>(std::min(last.size(), lists[lists.size() - 2].calls.size()));
      const std::vector<PassCall> draining(last.begin() + kept, last.end());
      last.erase(last.begin() + kept, last.end());
      bool begins = true;
      for (const PassCall& call : draining) {
        if (begins) lists.emplace_back();
        lists.back().calls.push_back(call);
        begins = is_backward(call.pass);
      }
    }
    std::vector<CalledPasses> made;
    for (CalledPasses& list : lists) {
      CalledPasses* const before = made.empty() ? nullptr : &made.back();
      if (before != nullptr && continues(*before, list)) {
        ++before->repeat;
        for (PassCall& call : before->calls) call.lag_step = -1;
      } else if (before != nullptr && list.microbatches > 0 &&
                 before->microbatches == list.microbatches && before->calls == list.calls) {
        ++before->repeat;
      } else {
        made.push_back(std::move(list));
      }
    }
    return made;
  }

  void add_segments() {
    const auto only_forward = [&](const CalledPasses& of) {
      return std::ranges::none_of(of.calls,
                                  [&](const PassCall& call) { return is_backward(call.pass); });
    };
    std::map<std::string, int> used;
    for (CalledPasses& made : segments()) {
      std::string name = made.microbatches == 0 ? "drain"
                         : only_forward(made)   ? "warm_up"
                                                : "steady";
      if (const int number = ++used[name]; number > 1) name += fmt::format(".{}", number);
      emitter_.begin_segment(std::move(name), made.repeat, made.microbatches);
      emitter_.segment().calls = std::move(made.calls);
    }
  }

  Program& program_;
  Emitter emitter_;
  State state_;
  std::vector<PipelineLaunch> launches_;
  std::deque<MicrobatchSchedule> chunks_;
  std::vector<MicrobatchSchedule::Ends> ends_;
  std::vector<PassesOfChunk> passes_;
  std::optional<std::size_t> reads_tokens_;  ///< the first chunk that does
  std::optional<PassId> tokens_;             ///< the pass that takes them
};

/// Events have one list: a stage that lacks one does not use it. Where stages have other numbers of
/// instances, each number is an event of its own.
void share_events(Job& job) {
  std::vector<Event> all;
  std::set<std::string> names;
  std::map<std::pair<std::string, std::int64_t>, EventId> ids;
  const auto key = [](const Event& event) {
    return std::pair{event.name, event.instances.value_or(1)};
  };
  for (const Program& program : job.programs)
    for (const Event& event : program.events) {
      if (!ids.try_emplace(key(event), EventId(all.size())).second) continue;
      Event& shared = all.emplace_back(event);
      shared.id = EventId(all.size() - 1);
      if (!names.insert(event.name).second)
        shared.name += fmt::format(".of_{}", event.instances.value_or(1));
    }
  for (Program& program : job.programs) {
    for (Plan& plan : program.plans)
      for (Op& op : ops_of(plan)) {
        const auto rename = [&](EventId& event) {
          event = ids.at(key(program.events[event.value]));
        };
        if (auto* record = std::get_if<Record>(&op.body)) rename(record->event);
        if (auto* wait = std::get_if<Wait>(&op.body)) rename(wait->event);
        if (auto* wait = std::get_if<HostWait>(&op.body)) rename(wait->event);
      }
    program.events = all;
  }
}

/// Streams have one list too. A stage without exchanges beside kernels (exchanges.cpp) has begun the
/// same one.
void share_streams(Job& job) {
  const auto streams = [](const Program& program) { return program.streams.size(); };
  const std::vector<Stream> all = std::ranges::max(job.programs, {}, streams).streams;
  for (Program& program : job.programs) program.streams = all;
}

using StageBuilders = std::vector<std::unique_ptr<StageBuilder>>;

/// A chunk receives the tensors that its neighbour sends.
void connect(StageBuilders& stages, std::size_t from, std::size_t to, PipelinePart part) {
  const auto at = [&](std::size_t chunk) -> StageBuilder& {
    return *stages[chunk % stages.size()];
  };
  const std::size_t sender = from / stages.size();
  const std::size_t receiver = to / stages.size();
  const auto p = static_cast<std::size_t>(part);
  at(to).ends(receiver).received[p] = at(from).ends(sender).sent[p] =
      at(from).chunk(sender).in_sending_order(part, at(to).chunk(receiver).needed(part));
}

}  // namespace

Job make_stages(const PlanConfig& config, const Meta& meta, const FamilyRecipe& family) {
  const std::vector<PipelineStage> stages = stages_of(config);
  const Model model = make_model(config);
  auto launches = pipeline_launches(pipeline_shape(config));
  Job job;
  job.programs.resize(stages.size());
  StageBuilders builders;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    Program& program = job.programs[s];
    program.meta = meta;
    program.config = config;
    program.classes = {class_of_stage(config.mesh, stages[s].index)};
    builders.push_back(
        std::make_unique<StageBuilder>(program, stages[s], model, family, std::move(launches[s])));
  }
  const std::size_t chunks = stages.size() * stages[0].chunks.size();
  for (std::size_t c = 0; c + 1 < chunks; ++c) {
    connect(builders, c, c + 1, PipelinePart::forward);
    connect(builders, c + 1, c, PipelinePart::backward);
  }
  for (const auto& builder : builders) builder->emit();
  share_events(job);
  share_streams(job);
  return job;
}

}  // namespace mfsdp::schedule
