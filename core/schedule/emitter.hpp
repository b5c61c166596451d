// Ids, names and the segment under construction. Every part of the schedule writes through this.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp::schedule {

/// The pools, in the order of their PoolId.
enum class PoolRole {
  model_weights,      ///< persistent compute weights
  state,              ///< persistent main weights, main gradients, optimizer state
  unsharded_weights,  ///< gathered units; acquired on all_gather
  gradients,          ///< full gradients; acquired on compute
  activations,        ///< activations, logits and scratch; acquired on compute
  workspace,          ///< persistent small buffers and the GEMM workspace
  pinned,             ///< host memory of copies
  reduced_gradients,  ///< registered memory that receives gradients, sums or parts
  received            ///< what other stages of a pipeline send; acquired on recv
};

/// The communicator of all ranks.
inline constexpr std::string_view kWorld = "world";
/// The communicator of the ranks that read other tokens, where not all ranks do.
inline constexpr std::string_view kLosses = "losses";

/// The memory of an operand, without its access and role.
struct Region {
  BufferId buffer;
  std::int64_t offset = 0;  ///< bytes
  DType dtype = DType::bf16;
  std::vector<std::int64_t> shape = {};
  std::vector<RankStride> rank_strides = {};
};

/// The properties of a new buffer.
struct BufferForm {
  Category category = Category::activation;
  DType dtype = DType::bf16;
  std::int64_t elements = 0;
  PoolRole pool = PoolRole::activations;
  std::optional<UnitId> unit{};
  std::optional<Contents> holds{};
  std::string_view slot_class{};  ///< of a transient buffer; each name becomes a number
};

[[nodiscard]] Operand operand(std::string role, Access access, const Region& region);

class Emitter {
 public:
  explicit Emitter(Program& program);

  /// Starts a segment of the plan `plans.back()`, which receives all further ops. `microbatches`
  /// begin in each of its repetitions.
  void begin_segment(std::string name, std::int64_t repeat, std::int64_t microbatches);

  /// Starts a pass of that plan instead, which segments can call.
  PassId begin_pass(std::string name);

  /// `group`: the group on which the op works as one, if any.
  void emit(StreamRole stream, Phase phase, std::optional<UnitId> unit, std::string name,
            OpBody body, std::optional<GroupId> group = std::nullopt);
  void record(StreamRole stream, Phase phase, const std::string& event);
  /// Adds a wait; resolve_bindings() fills in its bindings.
  void wait(StreamRole stream, Phase phase, const std::string& event);
  void acquire(StreamRole stream, Phase phase, BufferId buffer);
  void release(StreamRole stream, Phase phase, BufferId buffer);
  /// On the stream `outer`: each value becomes the largest of all ranks.
  void max_over_ranks(Phase phase, std::string name, const Region& values);

  /// A transfer between stages: `step` as in PeerStep. The region is what is sent or received.
  void transfer(StreamRole stream, Phase phase, std::string_view purpose, std::int64_t step,
                CollectiveKind kind, const Region& what);

  /// The buffer with that name, created on first use.
  BufferId buffer(const std::string& name, const BufferForm& form);
  /// The persistent buffer with that name, created on first use.
  BufferId persistent(const std::string& name, const BufferForm& form);
  EventId event(const std::string& name);
  /// Gives it that number of instances, in rotation by microbatch.
  void rotate(BufferId buffer, std::int64_t instances);
  void rotate(EventId event, std::int64_t instances);
  /// Adds a stream that not all plans have.
  void make_stream(StreamRole role);
  /// Adds a communicator over axes, unless it exists or has one rank only.
  void make_communicator(std::vector<Axis> axes, std::string_view purpose);
  [[nodiscard]] CommunicatorId communicator(std::string_view purpose) const;
  /// The transport of gradients.
  [[nodiscard]] Transport reduces_by() const;

  [[nodiscard]] const Buffer& at(BufferId id) const { return program_.buffers[id.value]; }
  [[nodiscard]] Program& program() { return program_; }
  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] const PlanConfig& config() const { return program_.config; }
  [[nodiscard]] Segment& segment() { return program_.plans.back().segments.back(); }

 private:
  void make_windows();
  void make_links();
  void make_pool(std::string name);
  [[nodiscard]] StreamId stream(StreamRole role) const;
  [[nodiscard]] PoolId pool(PoolRole role) const;
  [[nodiscard]] std::vector<Op>& ops();

  Program& program_;
  std::unordered_map<std::string, BufferId> buffers_;
  std::unordered_map<std::string, EventId> events_;
  std::map<std::pair<Category, std::string>, std::int64_t> slot_classes_;
  std::size_t ops_ = 0;
  bool in_pass_ = false;
};

}  // namespace mfsdp::schedule
