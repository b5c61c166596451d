// The plan: everything one rank does in a training step, as plain data.
//
//   Program                one memory map, shared by its plans
//   |- config, meta        what it was built from; meta is not hashed
//   |- classes             which ranks run it; a Job (core/plan/job.hpp) has a Program for each
//   class
//   |- streams, communicators, events
//   |- units > groups > parameters with offsets (flat layouts)
//   |- pools > buffers with offsets
//   `- plans: "train", "eval"
//      `- segments: such as first, middle x k, last, optimizer
//         `- ops, in host order
//
// A plan is a loop body. Host order is list order, then segment order; each segment runs `repeat`
// times. Names of segments are for people. There is no barrier between segments or steps: only
// streams, events and communicators order ops. Between two plans the host waits for all streams.
//
// Ranks that run different plans are of different classes, such as the stages of a pipeline. What
// they share is stated once: configuration, streams, communicators, events, units and groups;
// pools, buffers and plans are each class's own. Classes meet in collectives, of which send and
// recv are two kinds: a rank's n-th send to a peer on a communicator is that peer's n-th recv from
// it.
//
// Several microbatches may be under way, as in 1F1B. A buffer or event with `instances` n is n of a
// kind that take turns by microbatch, and an op with `lag` l works on the l-th microbatch before
// the newest: it means instance (microbatches begun - 1 - l) mod n (core/plan/rotation.hpp). All
// that is common costs nothing: one class, one instance and lag 0 are left out of the JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/vocabulary.hpp"
#include "core/model/model.hpp"
#include "core/plan/config.hpp"
#include "core/plan/op.hpp"
#include "core/plan/placement.hpp"

namespace mfsdp {

/// The plan of a training step: what is predicted, proved and timed.
inline constexpr std::string_view kTrainPlan = "train";

struct Stream {
  StreamId id;
  StreamRole role = StreamRole::compute;

  friend bool operator==(const Stream&, const Stream&) = default;
};

/// Ranks that differ only in their index on `axes` share one communicator.
struct Communicator {
  CommunicatorId id;
  std::vector<Axis> axes;
  std::string purpose;  ///< a name for people: "all_gather", "reduce_scatter", "outer", "world"
  std::int64_t size = 1;
  /// Of its collectives. All but `nccl` need both operands in pools that are registered with it.
  Transport transport = Transport::nccl;

  friend bool operator==(const Communicator&, const Communicator&) = default;
};

struct Event {
  EventId id;
  std::string name;
  std::optional<std::int64_t> instances{};  ///< that take turns by microbatch; one where not stated

  friend bool operator==(const Event&, const Event&) = default;
};

enum class MemorySpace { device, host };

template <>
struct Names<MemorySpace> {
  static constexpr std::array<std::string_view, 2> values{"device", "host"};
};

/// One allocation. All its transient buffers are acquired on one stream, so that a buffer is live
/// there from its acquire until that stream learns of its release.
struct Pool {
  PoolId id;
  std::string name;
  MemorySpace space = MemorySpace::device;
  std::int64_t alignment = 256;              ///< of every offset, bytes
  Bytes height;                              ///< bytes allocated
  Bytes lower_bound;                         ///< largest sum of aligned live bytes
  std::optional<CommunicatorId> registered;  ///< the communicator whose window it is

  friend bool operator==(const Pool&, const Pool&) = default;
};

/// What the elements of a buffer are.
enum class ContentKind {
  parameter,        ///< compute weights
  main_parameter,   ///< the weights that the optimizer updates, where they are not the compute ones
  gradient,         ///< sums of gradients, whoever has been added so far
  optimizer_state,  ///< a value for each element, or each block of them, named by the optimizer
  direction,        ///< of a step, before or after matrices of it are orthogonalised
  port              ///< what the host writes for the device, or reads from it
};

template <>
struct Names<ContentKind> {
  static constexpr std::array<std::string_view, 6> values{
      "parameter", "main_parameter", "gradient", "optimizer_state", "direction", "port"};
};

/// Where host and device meet.
enum class Port {
  /// int32 [2, T], written by the host: ids and labels of a microbatch; with document_mask
  /// [3, T], then each token's position in its document.
  tokens,
  step_block,        ///< core/runtime/step_block.hpp, written by the host
  report,            ///< core/runtime/step_report.hpp, read by the host
  rope_table,        ///< core/runtime/rope_table.hpp, written by the host before the first step
  local_rope_table,  ///< likewise, of layers that slide and turn otherwise
  loss_scale         ///< core/plan/loss_scale.hpp, written before the first step, kept by steps
};

template <>
struct Names<Port> {
  static constexpr std::array<std::string_view, 6> values{
      "tokens", "step_block", "report", "rope_table", "local_rope_table", "loss_scale"};
};

/// A group's elements in a buffer.
struct HeldGroup {
  GroupId group;
  std::int64_t offset = 0;  ///< bytes from the buffer's start to the group's first element there

  friend bool operator==(const HeldGroup&, const HeldGroup&) = default;
};

/// What a buffer holds, for those who are to find it: parameters with what belongs to them, and
/// ports. Activations and scratch are told by the ops that touch them.
struct Contents {
  ContentKind kind = ContentKind::parameter;
  std::vector<HeldGroup> groups{};  ///< several where a unit is gathered as one; none of a port
  Placement placement{};            ///< of the groups' elements
  std::string state{};              ///< of an optimizer_state: its name, such as "exp_avg"
  std::optional<Port> port{};       ///< of a port: which
  /// Of directions: the rank with index i on that axis has the i-th of the groups, and those behind
  /// the last one have none. All groups begin at one place, and are laid out alike.
  /// Of gradients: of the slice that the placement states, what each rank along that axis has of it
  /// by itself, one rank after the other: the parts of a sum.
  std::optional<Axis> dealt{};

  friend bool operator==(const Contents&, const Contents&) = default;
};

struct Buffer {
  BufferId id;
  std::string name;
  Category category = Category::activation;
  DType dtype = DType::bf16;
  PoolId pool;
  Bytes size;               ///< exact bytes, without alignment
  Bytes offset;             ///< from the pool's start
  bool persistent = false;  ///< lives for the whole run: never acquired or released
  std::optional<UnitId> unit;
  std::optional<Contents> holds{};
  /// Buffers of one class serve one purpose and take turns in the slots of `double_buffer`.
  std::optional<std::int64_t> slot_class{};
  /// Of a transient buffer: places that take turns by microbatch, one behind the other in the pool,
  /// each aligned as the pool is. One where not stated.
  std::optional<std::int64_t> instances{};

  friend bool operator==(const Buffer&, const Buffer&) = default;
};

/// A parameter's place in its group's flat buffer.
struct PlacedParameter {
  std::string name;
  ParameterRole role = ParameterRole::embedding;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  ///< elements
  bool decay = false;
  std::optional<Rational> rate{};  ///< what of the learning rate it gets; all where not stated

  friend bool operator==(const PlacedParameter&, const PlacedParameter&) = default;

  [[nodiscard]] std::int64_t elements() const;
};

/// A unit's parameters of equal dtype and requires_grad in one flat layout, which may be cut into
/// equal parts along `cut`, first along the first of these axes. Parameters, gradients and states
/// are cut along none, some or all of them, each in that order (core/plan/placement.hpp). Gradients
/// are sums over the ranks of `reduce`.
struct Group {
  GroupId id;
  UnitId unit;
  DType dtype = DType::bf16;
  bool requires_grad = true;
  std::int64_t chunk = 1;     ///< shards are multiples of it, elements
  std::int64_t elements = 0;  ///< padded, B
  std::vector<Axis> cut{};
  std::vector<Axis> reduce{};
  Placement weight{};    ///< of compute weights between their uses
  Placement gradient{};  ///< between microbatches, and where the norm and the optimizer read it
  Placement state{};     ///< of main weights and optimizer states: what a rank updates
  /// Along which axes its parameters are cut by their own dims before they are laid out: what
  /// follows has the shapes that a rank has of them. Empty but for experts that are dealt out.
  Placement shard{};
  std::optional<Optimizer> optimizer{};  ///< that updates it; none of one without gradients
  std::vector<PlacedParameter> parameters;

  friend bool operator==(const Group&, const Group&) = default;

  /// Elements of its parameters, padding not included.
  [[nodiscard]] std::int64_t used_elements() const;
};

struct PlanUnit {
  UnitId id;
  std::string name;
  UnitKind kind = UnitKind::block;
  std::int64_t position = 0;  ///< in forward order, from 0

  friend bool operator==(const PlanUnit&, const PlanUnit&) = default;
};

struct Segment {
  std::string name;  ///< for people: "first", "steady", "optimizer", ...
  std::int64_t repeat = 1;
  std::int64_t microbatches = 0;  ///< that begin in each of its repetitions
  std::vector<Op> ops;
  /// Transient buffers live at entry, ascending; one of several instances as often as these live.
  std::vector<BufferId> live_in;
  std::vector<BufferId> live_out;  ///< and at exit; equals the next segment's live_in

  friend bool operator==(const Segment&, const Segment&) = default;
};

struct Plan {
  std::string name;
  std::vector<Segment> segments;

  friend bool operator==(const Plan&, const Plan&) = default;
};

/// An index on an axis of the mesh.
struct MeshPlace {
  Axis axis = Axis::pp;
  std::int64_t index = 0;

  friend bool operator==(const MeshPlace&, const MeshPlace&) = default;
};

/// Ranks that run the same plan. Pure data parallelism has one class of all ranks.
struct RankClass {
  std::string role;
  std::int64_t ranks = 1;
  std::vector<MeshPlace> at{};  ///< the ranks that lie there; all of the mesh where it is empty

  friend bool operator==(const RankClass&, const RankClass&) = default;
};

/// What is known about a program without shaping it; never hashed.
struct Meta {
  std::string model_name;
  std::string tool_version;
  std::string stored_hash;  ///< as read from a file; empty when built

  friend bool operator==(const Meta&, const Meta&) = default;
};

struct Program {
  Meta meta;
  PlanConfig config;
  std::vector<RankClass> classes;  ///< the one that runs it, where there are several
  std::vector<Stream> streams;
  std::vector<Communicator> communicators;
  std::vector<Event> events;
  std::vector<PlanUnit> units;
  std::vector<Group> groups;
  std::vector<Pool> pools;
  std::vector<Buffer> buffers;
  std::vector<Plan> plans;

  friend bool operator==(const Program&, const Program&) = default;

  /// The plan of that name, or null.
  [[nodiscard]] const Plan* find_plan(std::string_view name) const;
};

}  // namespace mfsdp
