// The order in which one stage of a pipeline works on its microbatches.
//
//   gpipe        all forwards, then all backwards
//   1f1b         p - 1 - s forwards ahead, then a forward and a backward in action (2006.09503)
//   interleaved  the same for v chunks of each stage (2104.04473): chunk c of stage s has virtual
//                stage c p + s; microbatches go through the chunks in groups
//   zb_h1        1f1b whose weight gradients wait (2401.10241): stage s computes them s microbatches
//                after the gradients of inputs
//
// p: stages, s: this one, from 0, v: chunks of a stage, m: microbatches.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// The parts of a microbatch's work on a chunk. zb_h1 divides `backward` into the other two.
enum class PipelinePart { forward, backward, input_gradients, weight_gradients };

struct PipelineAction {
  PipelinePart part = PipelinePart::forward;
  std::int64_t microbatch = 0;
  std::int64_t chunk = 0;

  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};

/// An order is made for these numbers.
struct PipelineShape {
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  std::int64_t stages = 1;
  std::int64_t chunks = 1;  ///< of each stage; above 1 only if interleaved
  std::int64_t microbatches = 1;
  /// Microbatches that pass one chunk before the next chunk's action; 0: as many as stages. Only if
  /// interleaved.
  std::int64_t group = 0;
};

/// Refuses shapes that have no order. An interleaved order needs at least as many microbatches in a
/// group as there are stages, and a last group that is not smaller than that.
[[nodiscard]] Result<void> check(const PipelineShape& shape);

/// The actions of one stage. Requires a shape that check() accepts.
[[nodiscard]] std::vector<PipelineAction> pipeline_order(const PipelineShape& shape,
                                                         std::int64_t stage);

/// What a stage launches: an action, or a transfer to or from a neighbour.
enum class LaunchKind { action, send, receive };

struct PipelineLaunch {
  LaunchKind kind = LaunchKind::action;
  /// Of the stage: the action, or the one that makes what is sent, or that needs what is received.
  PipelineAction of;

  friend bool operator==(const PipelineLaunch&, const PipelineLaunch&) = default;
};

/// The launches of each stage. Where forwards take one unit of time, backwards two and transfers
/// none, a transfer begins when its tensors are made: this is the order of all transfers, on each
/// stage the same. Whatever a transfer waits for comes before it, so that devices that run them in
/// the order of their launches never wait for each other in a cycle.
[[nodiscard]] std::vector<std::vector<PipelineLaunch>> pipeline_launches(
    const PipelineShape& shape);

/// The most that have begun and not ended, in the order of launches: microbatches of a chunk between
/// a launch of `begin` and one of `end`.
struct LaunchSpan {
  LaunchKind kind = LaunchKind::action;
  PipelinePart part = PipelinePart::forward;
};
[[nodiscard]] std::int64_t most_between(const std::vector<PipelineLaunch>& launches,
                                        std::int64_t chunk, LaunchSpan begin, LaunchSpan end);

/// The most forwards, over all chunks, whose backward (with zb_h1: whose gradients of inputs) is
/// still to come.
[[nodiscard]] std::int64_t most_live(const std::vector<PipelineAction>& order);

}  // namespace mfsdp
