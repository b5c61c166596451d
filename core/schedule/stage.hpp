// The parts of a model that a class of ranks has, and the names of what stages share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/pipeline.hpp"

namespace mfsdp::schedule {

/// Units [begin, end) in forward order: embedding, blocks, head.
struct UnitSpan {
  std::size_t begin = 0;
  std::size_t end = std::numeric_limits<std::size_t>::max();

  [[nodiscard]] bool has(std::size_t unit) const { return unit >= begin && unit < end; }
};

/// A stage of a pipeline; by default the only one, with all units.
struct PipelineStage {
  std::int64_t index = 0;
  std::int64_t count = 1;
  std::vector<UnitSpan> chunks{{}};

  [[nodiscard]] bool is_only() const { return count == 1; }
  [[nodiscard]] bool is_first() const { return index == 0; }
  [[nodiscard]] bool is_last() const { return index + 1 == count; }
  [[nodiscard]] bool has(std::size_t unit) const {
    return std::ranges::any_of(chunks, [&](const UnitSpan& span) { return span.has(unit); });
  }
  /// The stage that has the next chunk of the model (`step` 1), or the one before (-1).
  [[nodiscard]] std::int64_t neighbour(std::int64_t step) const {
    return (index + step + count) % count;
  }
};

/// The stages of a configuration, in order.
[[nodiscard]] inline std::vector<PipelineStage> stages_of(const PlanConfig& config) {
  const std::int64_t count = config.mesh.size(Axis::pp);
  if (count == 1) return {PipelineStage{}};
  std::vector<PipelineStage> stages;
  for (std::int64_t s = 0; s < count; ++s)
    stages.push_back({.index = s, .count = count, .chunks = {}});
  const std::vector<Interval> blocks = blocks_of_chunks(config);
  for (std::size_t c = 0; c < blocks.size(); ++c) {
    const bool is_last = c + 1 == blocks.size();
    stages[c % stages.size()].chunks.push_back(
        {.begin = static_cast<std::size_t>(c == 0 ? 0 : blocks[c].begin + 1),
         .end = static_cast<std::size_t>(blocks[c].end + (is_last ? 2 : 1))});
  }
  return stages;
}

/// The communicator of all stages, for loss and norm.
inline constexpr std::string_view kStages = "stages";

/// The event of a stage's compute that comes to the last unit of a pass.
inline constexpr std::string_view kLastUnit = "last_unit";

/// The communicator for what a stage sends to the one with the next chunk (`step` 1) or with the one
/// before (-1). A rank sends on one communicator of a step and receives on another, so that sends
/// and receives do not wait for each other. With an odd number of stages the last and the first are
/// both even.
[[nodiscard]] inline std::string link_from(std::int64_t stage, std::int64_t step,
                                           std::int64_t count) {
  const bool wraps = count % 2 == 1 && (stage + step < 0 || stage + step == count);
  return std::string(step > 0 ? "results." : "gradients.") + (wraps            ? "around"
                                                              : stage % 2 == 0 ? "even"
                                                                               : "odd");
}

}  // namespace mfsdp::schedule
