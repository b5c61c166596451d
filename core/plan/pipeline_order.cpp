#include "core/plan/pipeline_order.hpp"

#include <fmt/format.h>

#include <algorithm>

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
