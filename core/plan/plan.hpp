// The plan: everything one rank does in a training step, as plain data.
//
//   Program                one memory map, shared by its plans
//   |- config, meta        what it was built from; meta is not hashed
//   |- classes             which ranks run it; a Job (core/plan/job.hpp) has a Program for each
//   |- streams, communicators, events
//   |- units > groups > parameters with offsets (flat layouts)
//   |- pools > buffers with offsets
//   `- plans, each of one role: train, eval, logprob
//      |- segments: such as first, middle x k, last, optimizer
//      |  `- ops, in host order, or calls of passes
//      `- passes: lists of ops that segments call, such as forward, backward
//
// A plan is a loop body. Host order is list order, then segment order; each segment runs `repeat`
// times. Segment names have no meaning. There is no barrier between segments or steps: only
// streams, events and communicators order ops. Between two plans the host waits for all streams.
//
// Ops that run at several places of a step stand once, in a pass, which segments call. A segment
// with ops of its own is one pass with one call (core/plan/instances.hpp).
//
// Ranks that run different plans, such as the stages of a pipeline, are in different classes.
// Classes share configuration, streams, communicators, events, units and groups; each has its own
// pools, buffers and plans. Classes communicate by collectives, including send and recv: a rank's
// n-th send to a peer on a communicator matches that peer's n-th recv from it.
//
// Several microbatches may be in flight, as in 1F1B. A buffer or event with n `instances` exists n
// times, in rotation by microbatch. An op with `lag` l works on the l-th microbatch before the
// newest: it uses instance (microbatches begun - 1 - l) mod n (core/plan/rotation.hpp). The lag of
// a call counts for all ops of its pass. The JSON leaves out defaults: one class, one instance,
// lag 0, no passes.
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

/// The role of a plan. A program has at most one plan of each.
enum class PlanRole {
  train,  ///< a step of training, which is predicted, proved and timed
  eval,   ///< the loss of one microbatch, without an update
  /// The log-probability of each token's label in one microbatch, and the loss as eval. Its output
  /// is port log_probs.
  logprob
};

constexpr auto value_names(PlanRole) { return name_array("train", "eval", "logprob"); }

struct Stream {
  StreamId id;
  StreamRole role = StreamRole::compute;

  friend bool operator==(const Stream&, const Stream&) = default;
};

/// Ranks that differ only in their index on `axes` share one communicator.
struct Communicator {
  CommunicatorId id;
  std::vector<Axis> axes;
  std::string purpose;  ///< a label: "all_gather", "reduce_scatter", "outer", "world"
  std::int64_t size = 1;
  /// All but `nccl` need both operands of a collective in pools that are registered with it.
  Transport transport = Transport::nccl;

  friend bool operator==(const Communicator&, const Communicator&) = default;
};

struct Event {
  EventId id;
  std::string name;
  std::optional<std::int64_t> instances{};  ///< in rotation by microbatch; default 1

  friend bool operator==(const Event&, const Event&) = default;
};

enum class MemorySpace { device, host };

constexpr auto value_names(MemorySpace) { return name_array("device", "host"); }

/// One allocation. All its transient buffers are acquired on one stream. A buffer is live from its
/// acquire until that stream has waited for its release.
struct Pool {
  PoolId id;
  std::string name;
  MemorySpace space = MemorySpace::device;
  std::int64_t alignment = 256;              ///< of every offset, bytes
  Bytes height;                              ///< bytes allocated
  Bytes lower_bound;                         ///< largest sum of aligned live bytes
  std::optional<CommunicatorId> registered;  ///< the communicator with which it is registered

  friend bool operator==(const Pool&, const Pool&) = default;
};

/// The kind of a buffer's elements.
enum class ContentKind {
  parameter,        ///< compute weights
  main_parameter,   ///< weights that the optimizer updates, if these are not the compute weights
  gradient,         ///< sums of gradients, complete or partial
  optimizer_state,  ///< a value for each element, or each block of them, named by the optimizer
  direction,        ///< of a step, before or after orthogonalisation
  cast_parameter,   ///< casts to FP8 of weights, made anew in each run of a plan
  port              ///< data that the host writes for the device or reads from it
};

constexpr auto value_names(ContentKind) {
  return name_array("parameter", "main_parameter", "gradient", "optimizer_state", "direction",
                    "cast_parameter", "port");
}

/// Data that the host writes or reads.
enum class Port {
  /// int32 [2, T], written by the host: ids and labels of a microbatch. With document_mask [3, T]:
  /// the third row is each token's position in its document.
  tokens,
  step_block,        ///< core/runtime/step_block.hpp, written by the host
  report,            ///< core/runtime/step_report.hpp, read by the host
  rope_table,        ///< core/runtime/rope_table.hpp, written by the host before the first step
  local_rope_table,  ///< the table of sliding-window layers, or of those without RoPE
  loss_scale,        ///< core/plan/loss_scale.hpp, written before the first step, updated by steps
  amax_history,      ///< core/plan/fp8.hpp, likewise
  log_probs  ///< fp32 [T], read by the host: log softmax(logits)[label]; 0 of tokens without label
};

constexpr auto value_names(Port) {
  return name_array("tokens", "step_block", "report", "rope_table", "local_rope_table",
                    "loss_scale", "amax_history", "log_probs");
}

/// A group's elements in a buffer.
struct HeldGroup {
  GroupId group;
  std::int64_t offset = 0;  ///< bytes from the buffer's start to the group's first element there

  friend bool operator==(const HeldGroup&, const HeldGroup&) = default;
};

/// The contents of a buffer of parameters, gradients or optimizer states, or of a port. Other
/// buffers, such as activations and scratch, have no description: the ops that use them define
/// their contents.
struct Contents {
  ContentKind kind = ContentKind::parameter;
  std::vector<HeldGroup> groups{};  ///< several where a unit is gathered as one; none for a port
  Placement placement{};            ///< of the groups' elements
  std::string state{};              ///< only for optimizer_state: its name, such as "exp_avg"
  std::optional<Port> port{};       ///< only for ports
  /// An axis over which contents are distributed. Directions: the rank with index i on the axis has
  /// the i-th group, and ranks after the last group have none; all groups have one offset and equal
  /// layouts. Gradients: the buffer has the slice of the placement from each rank along the axis,
  /// in rank order: the terms of a sum.
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
  /// Buffers of one class have one purpose and rotate through the slots of `double_buffer`.
  std::optional<std::int64_t> slot_class{};
  /// Copies of a transient buffer, in rotation by microbatch: consecutive in the pool, each aligned
  /// as the pool. Default 1.
  std::optional<std::int64_t> instances{};

  friend bool operator==(const Buffer&, const Buffer&) = default;

  /// Whether the host writes or reads the contents.
  [[nodiscard]] bool is_port() const { return holds && holds->port; }
};

/// A parameter's place in its group's flat buffer.
struct PlacedParameter {
  std::string name;
  ParameterRole role = ParameterRole::embedding;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  ///< elements
  bool decay = false;
  std::optional<Rational> rate{};  ///< factor of the learning rate; default 1

  friend bool operator==(const PlacedParameter&, const PlacedParameter&) = default;

  [[nodiscard]] std::int64_t elements() const;
};

/// A unit's parameters of equal dtype and requires_grad in one flat layout. The layout can be
/// sharded along the axes of `cut`, in their order. Parameters, gradients and states are sharded
/// along none, some or all of these axes, in that order (core/plan/placement.hpp). Gradients are
/// summed over the ranks of `reduce`.
struct Group {
  GroupId id;
  UnitId unit;
  DType dtype = DType::bf16;
  bool requires_grad = true;
  bool quantised = false;  ///< compute weights are stored as core/plan/nf4.hpp has it
  bool fp8 = false;        ///< one matrix, whose weights have the main dtype; FP8 GEMMs read casts
  std::int64_t chunk = 1;  ///< shards are multiples of it, elements
  std::int64_t elements = 0;  ///< padded, B
  std::vector<Axis> cut{};
  std::vector<Axis> reduce{};
  Placement weight{};    ///< of compute weights between their uses
  Placement gradient{};  ///< between microbatches, and for the norm and the optimizer
  Placement state{};     ///< of main weights and optimizer states: the part that a rank updates
  /// Axes along which parameters are sharded by their dims before they are laid out; `parameters`
  /// have the shapes on one rank. Groups of experts over ep have one, and in plans by hand groups
  /// over tp.
  Placement shard{};
  std::optional<Optimizer> optimizer{};  ///< none for a group without gradients
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

/// A list of ops in host order that is written once and runs wherever a segment calls it.
struct Pass {
  PassId id;
  std::string name;  ///< a label: "forward", "backward", "send", ...
  std::vector<Op> ops;

  friend bool operator==(const Pass&, const Pass&) = default;
};

/// One run of a pass in each repetition of a segment. In repetition r, from 0, its ops work on the
/// microbatch `lag` + r * `lag_step` before the newest, and each op's own lag before that one.
/// `lag_step` is -1 where microbatches end and none begins: each repetition takes the next one.
struct PassCall {
  PassId pass;
  std::int64_t lag = 0;
  std::int64_t lag_step = 0;

  friend bool operator==(const PassCall&, const PassCall&) = default;

  [[nodiscard]] std::int64_t lag_in(std::int64_t repetition) const {
    return lag + repetition * lag_step;
  }
};

struct Segment {
  std::string name;  ///< a label: "first", "steady", "optimizer", ...
  std::int64_t repeat = 1;
  std::int64_t microbatches = 0;  ///< that begin in each of its repetitions
  std::vector<Op> ops;            ///< its own; none if it calls passes
  std::vector<PassCall> calls{};  ///< in host order
  /// Transient buffers that are live at entry, ascending; a buffer is repeated for each live
  /// instance. Those of a repeated segment are live before its first repetition.
  std::vector<BufferId> live_in;
  /// The same at exit, after the last repetition; equals the next segment's live_in. Only a segment
  /// that calls passes may begin or end lifetimes over its repetitions.
  std::vector<BufferId> live_out;

  friend bool operator==(const Segment&, const Segment&) = default;
};

struct Plan {
  std::string name;
  std::vector<Segment> segments;
  std::vector<Pass> passes{};
  /// Only of a plan whose name is not that of its role.
  std::optional<PlanRole> stated_role{};

  friend bool operator==(const Plan&, const Plan&) = default;

  /// The stated role, or the one that the name is. None: the plan is not valid.
  [[nodiscard]] std::optional<PlanRole> role() const;
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
  std::vector<MeshPlace> at{};  ///< selects the ranks; empty: all of the mesh

  friend bool operator==(const RankClass&, const RankClass&) = default;
};

/// Information about a program that does not change it; never hashed.
struct Meta {
  std::string model_name;
  std::string tool_version;
  std::string stored_hash;  ///< from a plan file; empty when built

  friend bool operator==(const Meta&, const Meta&) = default;
};

struct Program {
  Meta meta;
  PlanConfig config;
  std::vector<RankClass> classes;  ///< in a job of several classes: the one that runs it
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
  /// The plan of that role, or null.
  [[nodiscard]] const Plan* find_plan(PlanRole role) const;
};

}  // namespace mfsdp
