#include "sim/engines/mcore_pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/engines/llama_sizes.hpp"

namespace mfsdp {
namespace {

using enum PipelinePart;

std::size_t kind_of(const PipelineAction& action) { return action.part == forward ? 0 : 1; }

}  // namespace

McorePipeline::McorePipeline(StepBuilder& step, const McoreStage& stage, std::int64_t elements)
    : step_(step),
      stage_(stage),
      elements_(elements),
      order_(pipeline_order(stage.shape, stage.stage)),
      chunks_(stage.chunks.size()),
      batched_(step.add_event("exchanged")),
      received_{step.add_event("received_activations"), step.add_event("received_gradients")},
      sent_{step.add_event("sent_activations"), step.add_event("sent_gradients")} {
  if (stage_.shape.chunks > 1) step_.separate_messages();
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    const auto chunk = static_cast<std::int64_t>(c);
    const auto declared = [&](std::string_view name) {
      return step_.declare(fmt::format("{}.{}", name, c), elements_ * kHalf, Category::activation);
    };
    if (stage_.has_before(chunk)) chunks_[c].input = declared("received");
    if (stage_.has_after(chunk)) chunks_[c].gradient = declared("received_gradient");
  }
}

void McorePipeline::write(const Write& forward, const Write& backward) {
  step_.set_instances(most_apart());
  write_passes(forward, backward);
  const auto actions = std::ssize(order_);
  const bool overlaps = stage_.shape.chunks > 1;
  for (std::ptrdiff_t t = -1; t < actions; ++t) {
    if (t >= 0) {
      calls_before_.push_back(calls_.size());
      const PipelineAction& action = order_[static_cast<std::size_t>(t)];
      calls_.push_back({.pass = pass_of(action), .microbatch = action.microbatch});
    }
    add_gap(overlaps ? overlapped_gap(t) : batched_gap(t));
  }
  calls_before_.push_back(calls_.size());
  write_segments();
}

// ---- Passes ------------------------------------------------------------------------------------

void McorePipeline::write_passes(const Write& forward, const Write& backward) {
  passes_.resize(chunks_.size());
  const bool several = stage_.shape.microbatches > 1;
  const auto written = [&](const Write& write, std::string_view kind, std::size_t chunk,
                           Variant variant, std::string_view ending) {
    const std::string work = fmt::format("{}.{}", kind, chunk);
    const PassId pass = step_.begin_pass(work + std::string(ending), work);
    write(static_cast<std::int64_t>(chunk), variant);
    return pass;
  };
  // In the order in which they first run.
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    Passes& made = passes_[c][0];
    made.first = written(forward, "forward", c, {.first = true, .last = !several}, ".first");
    made.others = made.last = several ? written(forward, "forward", c, {}, "") : made.first;
  }
  for (std::size_t c = chunks_.size(); c-- > 0;) {
    Passes& made = passes_[c][1];
    if (several) made.first = made.others = written(backward, "backward", c, {}, "");
    made.last = written(backward, "backward", c, {.first = !several, .last = true}, ".last");
    if (!several) made.first = made.others = made.last;
  }
}

PassId McorePipeline::pass_of(const PipelineAction& action) const {
  const Passes& of = passes_[static_cast<std::size_t>(action.chunk)][kind_of(action)];
  if (action.microbatch == stage_.shape.microbatches - 1) return of.last;
  return action.microbatch == 0 ? of.first : of.others;
}

/// Microbatches from the oldest one in work to the newest one, at most; one more may be received.
std::int64_t McorePipeline::most_apart() const {
  std::int64_t most = 1;
  std::int64_t begun = 0;
  std::int64_t ended = 0;
  for (const PipelineAction& action : order_) {
    if (action.part == forward && action.chunk == 0) begun = action.microbatch + 1;
    most = std::max(most, begun - ended + 1);
    if (action.part == backward && action.chunk == 0) ended = action.microbatch + 1;
  }
  return most;
}

// ---- Gaps --------------------------------------------------------------------------------------

bool McorePipeline::gets(const PipelineAction& action) const {
  return action.part == forward ? stage_.has_before(action.chunk) : stage_.has_after(action.chunk);
}

bool McorePipeline::gives(const PipelineAction& action) const {
  return action.part == forward ? stage_.has_after(action.chunk) : stage_.has_before(action.chunk);
}

Tensor McorePipeline::got(const PipelineAction& action) const {
  const Chunk& chunk = chunks_[static_cast<std::size_t>(action.chunk)];
  return action.part == forward ? chunk.input : chunk.gradient;
}

Tensor McorePipeline::given(const PipelineAction& action) const {
  const Chunk& chunk = chunks_[static_cast<std::size_t>(action.chunk)];
  return action.part == forward ? chunk.output : chunk.input_gradient;
}

McorePipeline::Gap McorePipeline::batched_gap(std::ptrdiff_t after) const {
  Gap gap;
  Launch sent;
  Launch received;
  if (after >= 0)
    if (const PipelineAction& action = order_[static_cast<std::size_t>(after)]; gives(action))
      sent.sent = action;
  if (after + 1 < std::ssize(order_))
    if (const PipelineAction& action = order_[static_cast<std::size_t>(after + 1)]; gets(action))
      received.received = action;
  if (sent.sent && received.received && sent.sent->part != received.received->part) {
    gap.launches.push_back({.sent = sent.sent, .received = received.received});
    return gap;
  }
  if (sent.sent) gap.launches.push_back(sent);
  if (received.received) gap.launches.push_back(received);
  return gap;
}

std::optional<PipelineAction> McorePipeline::next_of_kind(std::ptrdiff_t action) const {
  const PipelinePart part = order_[static_cast<std::size_t>(action)].part;
  const auto found =
      std::ranges::find(order_.begin() + action + 1, order_.end(), part, &PipelineAction::part);
  return found == order_.end() ? std::nullopt : std::optional(*found);
}

McorePipeline::Gap McorePipeline::overlapped_gap(std::ptrdiff_t after) const {
  if (after < 0) return batched_gap(after);
  const auto action_at = [&](std::ptrdiff_t t) -> const PipelineAction& {
    return order_[static_cast<std::size_t>(t)];
  };
  const PipelineAction& action = action_at(after);
  const bool is_end = after + 1 == std::ssize(order_);
  // Nothing runs beside the messages: warm-up and flush.
  const bool alone = is_end || action_at(after + 1).part == action.part;
  Gap gap{.waits = alone};
  if (gives(action)) gap.launches.push_back({.sent = action});
  if (const auto next = next_of_kind(after); next && gets(*next))
    gap.launches.push_back({.received = next});
  const auto first_backward =
      std::ranges::find(order_, backward, &PipelineAction::part) - order_.begin();
  if (after + 2 == first_backward && gets(action_at(first_backward)))
    gap.last = action_at(first_backward);
  // The action before sent its result beside this one.
  if (after > 0 && action_at(after - 1).part != action.part && gives(action_at(after - 1)))
    gap.freed = action_at(after - 1);
  if (!alone && gets(action_at(after + 1))) gap.awaited = action_at(after + 1);
  return gap;
}

void McorePipeline::add_gap(const Gap& gap) {
  std::vector<PipelineAction> actions;
  for (const Launch& launch : gap.launches)
    for (const auto& action : {launch.sent, launch.received})
      if (action) actions.push_back(*action);
  for (const auto& action : {gap.freed, gap.last, gap.awaited})
    if (action) actions.push_back(*action);
  if (actions.empty()) return;
  const std::int64_t newest =
      std::ranges::max_element(actions, {}, &PipelineAction::microbatch)->microbatch;
  std::string key = gap.waits ? "waits" : "";
  const auto add = [&](std::string_view what, const std::optional<PipelineAction>& action) {
    if (action)
      key += fmt::format(" {} {} of {}, {}", what, kind_of(*action), action->chunk,
                         newest - action->microbatch);
  };
  add("freed", gap.freed);
  for (const Launch& launch : gap.launches) {
    key += ';';
    add("sent", launch.sent);
    add("received", launch.received);
  }
  add("last", gap.last);
  add("awaited", gap.awaited);
  const auto [pass, is_new] = gaps_.try_emplace(key);
  if (is_new) {
    pass->second = step_.begin_pass(fmt::format("exchange.{}", gaps_.size() - 1));
    write_gap(gap, newest);
  }
  calls_.push_back({.pass = pass->second, .microbatch = newest});
}

void McorePipeline::write_gap(const Gap& gap, std::int64_t newest) {
  const auto of = [&](const PipelineAction& action) { step_.set_lag(newest - action.microbatch); };
  const auto free_sent = [&](const PipelineAction& action) {
    of(action);
    step_.free(given(action));
    step_.set_lag(0);
  };
  if (gap.freed) {
    step_.wait_for(sent_[kind_of(*gap.freed)]);
    free_sent(*gap.freed);
  }
  const bool batched = stage_.shape.chunks == 1;
  const auto event_of = [&](const Launch& launch) {
    if (batched) return batched_;
    return launch.sent ? sent_[kind_of(*launch.sent)] : received_[kind_of(*launch.received)];
  };
  const auto write_launch = [&](const Launch& launch) {
    std::vector<StageMessage> messages;
    const auto add = [&](bool sends, const PipelineAction& action) {
      messages.push_back(
          {.sends = sends, .of_gradients = action.part != forward, .elements = elements_});
    };
    if (launch.sent) add(true, *launch.sent);
    if (launch.received) {
      of(*launch.received);
      step_.allocate_again(got(*launch.received));
      step_.set_lag(0);
      add(false, *launch.received);
    }
    step_.exchange_messages(messages, event_of(launch));
  };
  for (const Launch& launch : gap.launches) {
    write_launch(launch);
    if (!batched) continue;
    step_.wait_for(batched_, true);
    if (launch.sent) free_sent(*launch.sent);
  }
  for (const Launch& launch : gap.launches) {
    if (batched || !gap.waits) break;
    step_.wait_for(event_of(launch));
    if (launch.sent) free_sent(*launch.sent);
  }
  if (gap.last) write_launch({.received = gap.last});
  if (gap.awaited) step_.wait_for(received_[kind_of(*gap.awaited)]);
}

// ---- Segments ----------------------------------------------------------------------------------

/// Microbatches that `count` calls and those before them work on.
std::int64_t McorePipeline::begun_by(std::size_t first, std::size_t count) const {
  std::int64_t begun = 0;
  for (std::size_t i = first; i < first + count; ++i)
    begun = std::max(begun, calls_[i].microbatch + 1);
  return begun;
}

/// `begun`: microbatches by the end of the first repetition.
void McorePipeline::write_segment(std::string_view name, const Calls& calls, std::int64_t begun,
                                  std::int64_t repeat) {
  if (calls.count == 0) return;
  step_.begin_segment(name, repeat, begun - begun_);
  for (std::size_t i = calls.first; i < calls.first + calls.count; ++i)
    step_.call(calls_[i].pass, begun - 1 - calls_[i].microbatch);
  begun_ += (begun - begun_) * repeat;
}

/// Whether the actions from `b` on recur `period` actions later, with the microbatches `group` later.
bool McorePipeline::recurs(std::size_t b, std::size_t period, std::int64_t group) const {
  if (b + 2 * period > order_.size()) return false;
  const std::size_t i = calls_before_[b];
  const std::size_t j = calls_before_[b + period];
  if (calls_before_[b + 2 * period] - j != j - i) return false;
  for (std::size_t k = 0; k < j - i; ++k)
    if (calls_[i + k].pass != calls_[j + k].pass ||
        calls_[i + k].microbatch + group != calls_[j + k].microbatch)
      return false;
  return true;
}

/// Actions that recur are one segment, repeated.
void McorePipeline::write_segments() {
  const PipelineShape& shape = stage_.shape;
  const std::int64_t usual = shape.group == 0 ? shape.stages : shape.group;
  const std::int64_t group = shape.chunks == 1 ? 1 : usual;
  const auto period = static_cast<std::size_t>(2 * group * shape.chunks);  // actions
  std::size_t first = 0;
  while (first < order_.size() && !recurs(first, period, group)) ++first;
  std::int64_t repeat = 1;
  for (std::size_t b = first; recurs(b, period, group); b += period) ++repeat;
  const auto whole = [&] {
    write_segment("all", {.first = 0, .count = calls_.size()}, shape.microbatches, 1);
  };
  if (repeat == 1) return whole();
  const std::size_t begin = calls_before_[first];
  const std::size_t length = calls_before_[first + period] - begin;
  const std::int64_t before = std::max(begun_by(0, begin), begun_by(begin, length) - group);
  repeat = std::min(repeat, (shape.microbatches - before) / group);
  if (repeat < 2) return whole();
  write_segment("warm_up", {.first = 0, .count = begin}, before, 1);
  write_segment("steady", {.first = begin, .count = length}, begun_ + group, repeat);
  const std::size_t end = begin + length * static_cast<std::size_t>(repeat);
  write_segment("flush", {.first = end, .count = calls_.size() - end}, shape.microbatches, 1);
}

}  // namespace mfsdp
