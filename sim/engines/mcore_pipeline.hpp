// The order of work of a pipeline's stage in Megatron-Core, and what it exchanges with its neighbours.
//
//   1F1B          receives and sends are batched: the output of a action and the input of the next one
//                 are one launch if they go opposite ways. Compute and the host wait for each launch
//   interleaved   (overlap_p2p_comm) the input of the next forward is received beside the backward
//                 between, and the other way round. In warm-up and flush nothing runs beside them
//   tensors       a received one is new each time. One that was sent is freed after that
//                 (deallocate_pipeline_outputs)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/engines/mcore_stage.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

class McorePipeline {
 public:
  /// `elements`: of a message.
  McorePipeline(StepBuilder& step, const McoreStage& stage, std::int64_t elements);

  /// The tensors that a chunk exchanges: those that it receives, and those that its passes return.
  struct Chunk {
    Tensor input;     ///< activations; none if the chunk has the embedding
    Tensor gradient;  ///< of its output; none if it has the head
    Tensor output;
    Tensor input_gradient;
  };
  [[nodiscard]] Chunk& of(std::int64_t chunk) { return chunks_[static_cast<std::size_t>(chunk)]; }

  /// A action's place among those of its chunk and kind.
  struct Variant {
    bool first = false;
    bool last = false;
  };
  /// Writes the ops of a forward or a backward of a chunk into the pass that is open.
  using Write = std::function<void(std::int64_t chunk, Variant variant)>;

  /// Writes all passes, and the segments that call them.
  void write(const Write& forward, const Write& backward);

 private:
  struct Call {
    PassId pass;
    std::int64_t microbatch = 0;
  };
  /// A launch: the tensor that a action made is sent, and one for another action is received.
  struct Launch {
    std::optional<PipelineAction> sent{};
    std::optional<PipelineAction> received{};
  };
  /// Everything between two actions, in this order.
  struct Gap {
    std::optional<PipelineAction> freed{};  ///< whose tensor was sent before
    std::vector<Launch> launches{};
    bool waits = true;  ///< for all launches but the last; what was sent is freed
    std::optional<PipelineAction> last{};     ///< is received for a later action
    std::optional<PipelineAction> awaited{};  ///< whose input was launched before
  };

  void write_passes(const Write& forward, const Write& backward);
  [[nodiscard]] PassId pass_of(const PipelineAction& action) const;
  [[nodiscard]] bool gets(const PipelineAction& action) const;
  [[nodiscard]] bool gives(const PipelineAction& action) const;
  [[nodiscard]] Tensor got(const PipelineAction& action) const;
  [[nodiscard]] Tensor given(const PipelineAction& action) const;
  // Gaps by the number of the action before them; -1: before all actions.
  [[nodiscard]] Gap batched_gap(std::ptrdiff_t after) const;
  [[nodiscard]] Gap overlapped_gap(std::ptrdiff_t after) const;
  [[nodiscard]] std::optional<PipelineAction> next_of_kind(std::ptrdiff_t action) const;
  void add_gap(const Gap& gap);
  void write_gap(const Gap& gap, std::int64_t newest);
  void write_segments();
  struct Calls {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  void write_segment(std::string_view name, const Calls& calls, std::int64_t begun,
                     std::int64_t repeat);
  [[nodiscard]] std::int64_t begun_by(std::size_t first, std::size_t count) const;
  [[nodiscard]] bool recurs(std::size_t b, std::size_t period, std::int64_t group) const;
  [[nodiscard]] std::int64_t most_apart() const;

  StepBuilder& step_;
  McoreStage stage_;
  std::int64_t elements_;
  std::vector<PipelineAction> order_;
  std::vector<Chunk> chunks_;
  EventId batched_;
  std::array<EventId, 2> received_;  ///< activations, gradients; as all of these
  std::array<EventId, 2> sent_;
  struct Passes {
    PassId first, others, last;  ///< the last one may be the first
  };
  std::vector<std::array<Passes, 2>> passes_{};  ///< by chunk: forward, backward
  std::vector<Call> calls_{};
  std::vector<std::size_t> calls_before_{};  ///< by action: number of calls before its own
  std::map<std::string, PassId, std::less<>> gaps_{};
  std::int64_t begun_ = 0;
};

}  // namespace mfsdp
