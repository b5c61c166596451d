#include "core/schedule/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
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

/// The passes of a chunk. Those of backward differ in what they do with sums of gradients.
struct PassesOfChunk {
  std::optional<PassId> receive{};
  PassId forward{};
  PassId first_backward{};
  PassId backward{};
  PassId last_backward{};
  std::optional<PassId> send_gradient{};
};

/// One stage under construction.
class StageBuilder {
 public:
  StageBuilder(Program& program, const PipelineStage& stage, const Model& model,
               const FamilyRecipe& family)
      : program_(program),
        emitter_(program),
        state_(emitter_, model, stage),
        order_(pipeline_order(pipeline_shape(program.config), stage.index)) {
    for (std::size_t c = 0; c < stage.chunks.size(); ++c) {
      chunks_.emplace_back(emitter_, state_, family, true, c);
      ends_.push_back({.in_flight = in_flight(c), .microbatches = program.config.microbatches});
    }
  }

  [[nodiscard]] const MicrobatchSchedule& chunk(std::size_t c) const { return chunks_[c]; }
  [[nodiscard]] MicrobatchSchedule::Ends& ends(std::size_t c) { return ends_[c]; }

  void emit() {
    program_.plans.push_back({.name = std::string(to_string(PlanRole::train)), .segments = {}});
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      chunks_[c].set_ends(ends_[c]);
      make_passes(c);
    }
    add_segments();
    emitter_.begin_segment("optimizer", 1, 0);
    if (state_.stage.is_last()) emit_loss(emitter_, state_, "", true);
    emit_optimizer(emitter_, state_);
    state_live_buffers(program_.plans.back());
  }

 private:
  /// Microbatches of a chunk between their forward and their backward, at most.
  [[nodiscard]] std::int64_t in_flight(std::size_t chunk) const {
    std::vector<PipelineAction> own = order_;
    std::erase_if(own, [&](const PipelineAction& action) {
      return static_cast<std::size_t>(action.chunk) != chunk;
    });
    return most_live(own);
  }

  void make_passes(std::size_t chunk) {
    MicrobatchSchedule& schedule = chunks_[chunk];
    const std::string of = chunks_.size() > 1 ? fmt::format(".{}", chunk) : "";
    PassesOfChunk& made = passes_.emplace_back();
    if (!ends_[chunk].received[static_cast<std::size_t>(PipelinePart::forward)].empty()) {
      made.receive = emitter_.begin_pass("receive" + of);
      schedule.emit_receives();
    }
    made.forward = emitter_.begin_pass("forward" + of);
    schedule.emit_pass(PipelinePart::forward, {});
    make_backwards(made, schedule, of);
    if (!ends_[chunk].sent[static_cast<std::size_t>(PipelinePart::backward)].empty()) {
      made.send_gradient = emitter_.begin_pass("send_gradient" + of);
      schedule.emit_sends();
    }
  }

  void make_backwards(PassesOfChunk& made, MicrobatchSchedule& schedule, const std::string& of) {
    const auto make = [&](const char* name, Position position) {
      const PassId pass = emitter_.begin_pass(name + of);
      schedule.emit_pass(PipelinePart::backward, position);
      return pass;
    };
    const std::int64_t microbatches = program_.config.microbatches;
    const bool is_one = microbatches == 1;
    made.first_backward =
        make(is_one ? "backward" : "first_backward", {.first = true, .last = is_one});
    made.backward = made.last_backward = made.first_backward;
    if (is_one) return;
    if (microbatches > 2) {
      MicrobatchSchedule::Carry before;
      before = schedule.carry();
      made.backward = make("backward", {.first = false, .last = false});
      if (schedule.carry() != before)
        throw std::logic_error("a middle microbatch does not end as it begins");
    }
    made.last_backward = make("last_backward", {.first = false, .last = true});
  }

  [[nodiscard]] const PassesOfChunk& of_chunk(const PipelineAction& action) const {
    return passes_[static_cast<std::size_t>(action.chunk)];
  }

  [[nodiscard]] bool is_backward(PassId pass) const {
    return std::ranges::any_of(passes_, [&](const PassesOfChunk& of) {
      return pass == of.first_backward || pass == of.backward || pass == of.last_backward;
    });
  }

  [[nodiscard]] PassId pass_of(const PipelineAction& action) const {
    const PassesOfChunk& of = of_chunk(action);
    if (action.part == PipelinePart::forward) return of.forward;
    if (action.microbatch == 0) return of.first_backward;
    return action.microbatch + 1 == program_.config.microbatches ? of.last_backward : of.backward;
  }

  /// Calls until the next microbatch begins, or with several chunks the next group of them. The
  /// lags of a list count from its last microbatch. A gradient is sent once the inputs of the next
  /// forward are received.
  [[nodiscard]] std::vector<CalledPasses> lists_of_calls() const {
    const PipelineShape shape = pipeline_shape(program_.config);
    std::int64_t group = 1;
    if (shape.chunks > 1) group = shape.group > 0 ? shape.group : shape.stages;
    std::vector<CalledPasses> lists;
    std::int64_t begun = 0;
    const auto call = [&](std::optional<PassId> pass, std::int64_t microbatch) {
      if (pass) lists.back().calls.push_back({.pass = *pass, .lag = begun - 1 - microbatch});
    };
    const PipelineAction* unsent = nullptr;
    const auto send = [&] {
      if (unsent != nullptr) call(of_chunk(*unsent).send_gradient, unsent->microbatch);
      unsent = nullptr;
    };
    for (const PipelineAction& action : order_) {
      const bool forward = action.part == PipelinePart::forward;
      if (forward && action.chunk == 0 && action.microbatch == begun) {
        lists.push_back({.microbatches = std::min(group, shape.microbatches - begun)});
        begun += lists.back().microbatches;
      }
      if (forward) call(of_chunk(action).receive, action.microbatch);
      send();
      call(pass_of(action), action.microbatch);
      if (!forward) unsent = &action;
    }
    send();
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
  std::vector<PipelineAction> order_;
  std::deque<MicrobatchSchedule> chunks_;
  std::vector<MicrobatchSchedule::Ends> ends_;
  std::vector<PassesOfChunk> passes_;
};

/// Events have one list: a stage that lacks one does not use it.
void share_events(Job& job) {
  std::vector<Event> all;
  std::map<std::string, EventId> ids;
  for (const Program& program : job.programs)
    for (const Event& event : program.events) {
      const auto [known, fresh] = ids.try_emplace(event.name, EventId(all.size()));
      if (fresh) all.push_back({.id = known->second, .name = event.name});
      Event& shared = all[known->second.value];
      shared.instances = std::max(shared.instances, event.instances);
    }
  for (Program& program : job.programs) {
    for (Plan& plan : program.plans)
      for (Op& op : ops_of(plan)) {
        const auto rename = [&](EventId& event) {
          event = ids.at(program.events[event.value].name);
        };
        if (auto* record = std::get_if<Record>(&op.body)) rename(record->event);
        if (auto* wait = std::get_if<Wait>(&op.body)) rename(wait->event);
        if (auto* wait = std::get_if<HostWait>(&op.body)) rename(wait->event);
      }
    program.events = all;
  }
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
  Job job;
  job.programs.resize(stages.size());
  StageBuilders builders;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    Program& program = job.programs[s];
    program.meta = meta;
    program.config = config;
    program.classes = {class_of_stage(config.mesh, stages[s].index)};
    builders.push_back(std::make_unique<StageBuilder>(program, stages[s], model, family));
  }
  const std::size_t chunks = stages.size() * stages[0].chunks.size();
  for (std::size_t c = 0; c + 1 < chunks; ++c) {
    connect(builders, c, c + 1, PipelinePart::forward);
    connect(builders, c + 1, c, PipelinePart::backward);
  }
  for (const auto& builder : builders) builder->emit();
  share_events(job);
  return job;
}

}  // namespace mfsdp::schedule
