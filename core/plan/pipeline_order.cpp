#include "core/plan/pipeline_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace mfsdp {
namespace {

using enum PipelinePart;

/// The chunk and microbatch of the i-th forward of a stage. Backwards have the chunks in reverse.
std::vector<PipelineAction> in_groups(const PipelineShape& shape, PipelinePart part) {
  const std::int64_t group = shape.group == 0 ? shape.stages : shape.group;
  std::vector<PipelineAction> actions;
  for (std::int64_t first = 0; first < shape.microbatches; first += group)
    for (std::int64_t c = 0; c < shape.chunks; ++c)
      for (std::int64_t m = first; m < std::min(first + group, shape.microbatches); ++m)
        actions.push_back(
            {.part = part, .microbatch = m, .chunk = part == forward ? c : shape.chunks - 1 - c});
  return actions;
}

/// Forwards before the first backward.
std::int64_t warm_up(const PipelineShape& shape, std::int64_t stage) {
  const std::int64_t forwards = shape.microbatches * shape.chunks;
  const std::int64_t after = shape.stages - 1 - stage;
  switch (shape.schedule) {
    case PipelineSchedule::gpipe: return forwards;
    case PipelineSchedule::one_f_one_b:
    case PipelineSchedule::zb_h1: return std::min(after, forwards);
    case PipelineSchedule::interleaved: break;
  }
  const std::int64_t group = shape.group == 0 ? shape.stages : shape.group;
  // With one chunk it is plain 1f1b.
  const std::int64_t ahead = shape.chunks == 1 ? after : 2 * after + (shape.chunks - 1) * group;
  return std::min(ahead, forwards);
}

/// Divides backwards: weight gradients wait until `late` more microbatches have theirs of inputs.
std::vector<PipelineAction> with_late_weights(const std::vector<PipelineAction>& order,
                                              std::int64_t late) {
  std::vector<PipelineAction> actions;
  std::int64_t waiting = 0;  // the first microbatch without weight gradients
  std::int64_t done = 0;     // with gradients of inputs
  const auto weights = [&] {
    actions.push_back({.part = weight_gradients, .microbatch = waiting++, .chunk = 0});
  };
  for (const PipelineAction& action : order) {
    if (action.part == forward) {
      actions.push_back(action);
      continue;
    }
    actions.push_back({.part = input_gradients, .microbatch = action.microbatch, .chunk = 0});
    if (++done - waiting > late) weights();
  }
  while (waiting < done) weights();
  return actions;
}

}  // namespace

Result<void> check(const PipelineShape& shape) {
  const bool interleaved = shape.schedule == PipelineSchedule::interleaved;
  if (!interleaved && shape.chunks > 1)
    return fail("--vpp", fmt::format("expected --schedule interleaved for {} chunks of a stage",
                                     shape.chunks));
  if (!interleaved && shape.group != 0)
    return fail("--microbatch-group", "expected --schedule interleaved");
  if (!interleaved || shape.chunks == 1) return {};
  const std::int64_t group = shape.group == 0 ? shape.stages : shape.group;
  if (group < shape.stages || group > shape.microbatches)
    return fail("--microbatch-group",
                fmt::format("expected at least --pp ({}) and at most the number of microbatches "
                            "({}), got {}",
                            shape.stages, shape.microbatches, group));
  const std::int64_t rest = shape.microbatches % group;
  if (rest != 0 && rest < shape.stages)
    return fail("--microbatch-group",
                fmt::format("{} microbatches in groups of {} leave {} for the last group; expected "
                            "none, or at least --pp ({})",
                            shape.microbatches, group, rest, shape.stages));
  return {};
}

std::vector<PipelineAction> pipeline_order(const PipelineShape& shape, std::int64_t stage) {
  const std::vector<PipelineAction> forwards = in_groups(shape, forward);
  const std::vector<PipelineAction> backwards = in_groups(shape, backward);
  const auto ahead = static_cast<std::size_t>(warm_up(shape, stage));
  std::vector<PipelineAction> order(forwards.begin(),
                                    forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    if (ahead + i < forwards.size()) order.push_back(forwards[ahead + i]);
    order.push_back(backwards[i]);
  }
  return shape.schedule == PipelineSchedule::zb_h1 ? with_late_weights(order, stage) : order;
}

namespace {

/// The times of all stages' actions, without transfers.
class Timetable {
 public:
  explicit Timetable(const PipelineShape& shape)
      : shape_(shape), positions_(shape.stages * shape.chunks) {
    for (auto& ends : ends_)
      ends.assign(static_cast<std::size_t>(positions_ * shape.microbatches), -1);
    for (std::int64_t s = 0; s < shape.stages; ++s) {
      orders_.push_back(pipeline_order(shape, s));
      begins_.emplace_back();
    }
    std::vector<std::int64_t> free(orders_.size(), 0);
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t s = 0; s < orders_.size(); ++s)
        while (begins_[s].size() < orders_[s].size() && run_next(s, free[s])) moves = true;
    }
  }

  [[nodiscard]] std::vector<std::vector<PipelineLaunch>> launches() const {
    struct Transfer {
      std::array<std::int64_t, 3> key{};  ///< time, part, position of the sender
      PipelineLaunch launch;
    };
    std::vector<std::vector<Transfer>> transfers(orders_.size());
    const auto add = [&](const PipelineAction& of, std::int64_t from, std::int64_t to) {
      const std::array key{end(of, from), of.part == forward ? std::int64_t{0} : 1, from};
      const auto at = [&](LaunchKind kind, std::int64_t position) {
        transfers[static_cast<std::size_t>(position % shape_.stages)].push_back(
            {.key = key,
             .launch = {.kind = kind,
                        .of = {.part = of.part,
                               .microbatch = of.microbatch,
                               .chunk = position / shape_.stages}}});
      };
      at(LaunchKind::send, from);
      at(LaunchKind::receive, to);
    };
    for (std::size_t s = 0; s < orders_.size(); ++s)
      for (const PipelineAction& of : orders_[s]) {
        const std::int64_t from = position(s, of);
        const std::int64_t to = from + (of.part == forward ? 1 : -1);
        if (of.part != weight_gradients && to >= 0 && to < positions_) add(of, from, to);
      }
    std::vector<std::vector<PipelineLaunch>> all;
    for (std::size_t s = 0; s < orders_.size(); ++s) {
      std::ranges::sort(transfers[s], {}, &Transfer::key);
      auto next = transfers[s].begin();
      std::vector<PipelineLaunch>& made = all.emplace_back();
      for (std::size_t i = 0; i < orders_[s].size(); ++i) {
        for (; next != transfers[s].end() && next->key[0] <= begins_[s][i]; ++next)
          made.push_back(next->launch);
        made.push_back({.kind = LaunchKind::action, .of = orders_[s][i]});
      }
      for (; next != transfers[s].end(); ++next) made.push_back(next->launch);
    }
    return all;
  }

 private:
  /// Of a stage's chunk, in the model.
  [[nodiscard]] std::int64_t position(std::size_t stage, const PipelineAction& of) const {
    return of.chunk * shape_.stages + static_cast<std::int64_t>(stage);
  }
  [[nodiscard]] std::size_t entry(std::int64_t position, std::int64_t microbatch) const {
    return static_cast<std::size_t>(position * shape_.microbatches + microbatch);
  }
  [[nodiscard]] std::int64_t end(const PipelineAction& of, std::int64_t position) const {
    return ends_[of.part == forward ? 0 : 1][entry(position, of.microbatch)];
  }

  /// The end of what an action waits for, or -1 while that is not known.
  [[nodiscard]] std::int64_t ready(const PipelineAction& of, std::int64_t position) const {
    if (of.part == weight_gradients) return 0;  // after the rest of its backward, on its stage
    if (of.part == forward) return position == 0 ? 0 : ends_[0][entry(position - 1, of.microbatch)];
    if (position + 1 == positions_) return ends_[0][entry(position, of.microbatch)];
    return ends_[1][entry(position + 1, of.microbatch)];
  }

  bool run_next(std::size_t s, std::int64_t& free) {
    const PipelineAction& of = orders_[s][begins_[s].size()];
    const std::int64_t at = position(s, of);
    const std::int64_t ready_at = ready(of, at);
    if (ready_at < 0) return false;
    begins_[s].push_back(std::max(free, ready_at));
    free = begins_[s].back() + (of.part == backward ? 2 : 1);
    if (of.part != weight_gradients)
      ends_[of.part == forward ? 0 : 1][entry(at, of.microbatch)] = free;
    return true;
  }

  const PipelineShape& shape_;
  std::int64_t positions_;
  std::vector<std::vector<PipelineAction>> orders_;
  std::vector<std::vector<std::int64_t>> begins_;    // by stage and action
  std::array<std::vector<std::int64_t>, 2> ends_{};  // of forwards, of gradients of inputs
};

}  // namespace

std::vector<std::vector<PipelineLaunch>> pipeline_launches(const PipelineShape& shape) {
  return Timetable(shape).launches();
}

std::int64_t most_between(const std::vector<PipelineLaunch>& launches, std::int64_t chunk,
                          LaunchSpan begin, LaunchSpan end) {
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (const PipelineLaunch& launch : launches) {
    if (launch.of.chunk != chunk) continue;
    const auto is = [&](LaunchSpan at) {
      return launch.kind == at.kind && launch.of.part == at.part;
    };
    if (is(begin)) most = std::max(most, ++live);
    if (is(end)) --live;
  }
  return most;
}

std::int64_t most_live(const std::vector<PipelineAction>& order) {
  std::int64_t live = 0;
  std::int64_t most = 0;
  for (const PipelineAction& action : order) {
    if (action.part == forward) most = std::max(most, ++live);
    if (action.part == backward || action.part == input_gradients) --live;
  }
  return most;
}

}  // namespace mfsdp
