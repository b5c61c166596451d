// Ops: the entries of a plan. Ten kinds, closed; each is plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/rational.hpp"
#include "core/base/vocabulary.hpp"
#include "core/plan/kernel_spec.hpp"

namespace mfsdp {

/// What an operand adds to its offset for each step along a mesh axis: one plan serves all ranks.
struct RankStride {
  Axis axis = Axis::dp_shard;
  std::int64_t bytes = 0;

  friend bool operator==(const RankStride&, const RankStride&) = default;
};

/// A tensor in a buffer. Its first element lies at
/// offset + sum over rank_strides of bytes * (the rank's index on that axis).
struct Operand {
  std::string role;  ///< what the op calls it: "input", "weight", "output", ...
  Access access = Access::read;
  BufferId buffer;
  std::int64_t offset = 0;  ///< bytes from the buffer's start
  DType dtype = DType::bf16;
  std::vector<std::int64_t> shape;    ///< dims, outermost first
  std::vector<std::int64_t> strides;  ///< elements; empty means contiguous
  std::vector<RankStride> rank_strides;

  friend bool operator==(const Operand&, const Operand&) = default;

  /// Every operand has a role; one without stands for none.
  [[nodiscard]] bool stated() const { return !role.empty(); }
  [[nodiscard]] std::int64_t elements() const;
  /// Bytes that the op touches: elements() times the size of one.
  [[nodiscard]] std::int64_t touched_bytes() const;
  /// Bytes from the first element's start to the last element's end.
  [[nodiscard]] std::int64_t span_bytes() const;
};

/// A number that a kernel needs beside its operands (kernel_spec.hpp): "m", "beta", "heads",
/// "epsilon", ... Most are integers.
struct Attribute {
  std::string name;
  Rational value{};

  Attribute() = default;
  Attribute(std::string its_name, Rational number) : name(std::move(its_name)), value(number) {}
  Attribute(std::string its_name, std::int64_t number)
      : name(std::move(its_name)), value{.num = number} {}

  friend bool operator==(const Attribute&, const Attribute&) = default;
};

/// How a memory-bound kernel of another engine meets memory: its attribute "pattern". Our own
/// kernels have none.
enum class AccessPattern { contiguous, strided, pieces };

struct Kernel {
  KernelKind kind = KernelKind::gemm;
  std::vector<Operand> operands;
  std::vector<Attribute> attributes;  ///< sorted by name
  std::int64_t flops = 0;

  friend bool operator==(const Kernel&, const Kernel&) = default;

  /// The attribute's value, or `otherwise` where the kernel has no integer of that name.
  [[nodiscard]] std::int64_t attribute(std::string_view name, std::int64_t otherwise = 0) const;
  /// The attribute of that name, or null.
  [[nodiscard]] const Attribute* find_attribute(std::string_view name) const;
  /// Bytes read and written, each operand once per direction, scratch not counted; of rows with
  /// room for more than there usually are, those (usual_rows()). A kernel that
  /// touches only part of an operand (rows of an embedding) states the attribute "bytes" instead.
  [[nodiscard]] std::int64_t bytes() const;
};

/// Of all_to_all the i-th rank gets the i-th part of every rank's input, and has them one behind
/// the other in the order of the ranks. `send` and `recv` are point to point: of a communicator's
/// ranks two take part.
enum class CollectiveKind { all_gather, all_reduce, reduce_scatter, all_to_all, send, recv };

template <>
struct Names<CollectiveKind> {
  static constexpr std::array<std::string_view, 6> values{
      "all_gather", "all_reduce", "reduce_scatter", "all_to_all", "send", "recv"};
};

[[nodiscard]] constexpr bool is_point_to_point(CollectiveKind kind) {
  return kind == CollectiveKind::send || kind == CollectiveKind::recv;
}

/// The rank with which a send or a recv has to do: that many steps along an axis of its
/// communicator, forward or (negative) backward. The axis has an end: no step leads around it.
struct PeerStep {
  Axis axis = Axis::pp;
  std::int64_t step = 1;

  friend bool operator==(const PeerStep&, const PeerStep&) = default;
};

enum class Reduction { none, sum };

template <>
struct Names<Reduction> {
  static constexpr std::array<std::string_view, 2> values{"none", "sum"};
};

/// Elements of a collective's input and output.
struct CollectiveSizes {
  std::int64_t input = 0;
  std::int64_t output = 0;
};

struct Collective {
  CollectiveKind kind = CollectiveKind::all_gather;
  CommunicatorId communicator;
  Reduction reduction = Reduction::none;
  /// Elements as NCCL counts them: all_gather per rank sent, reduce_scatter per rank received,
  /// all_to_all per pair of ranks, all others in all.
  std::int64_t count = 0;
  DType dtype = DType::bf16;
  Operand input;                   ///< not stated of a recv
  Operand output;                  ///< not stated of a send
  std::optional<PeerStep> peer{};  ///< of a send or a recv, and of these alone

  friend bool operator==(const Collective&, const Collective&) = default;

  /// What `count` means for the operands among so many ranks; not of one between two.
  [[nodiscard]] CollectiveSizes sizes(std::int64_t ranks) const;
};

enum class CopyKind { d2d, d2h, h2d };

template <>
struct Names<CopyKind> {
  static constexpr std::array<std::string_view, 3> values{"d2d", "d2h", "h2d"};
};

struct Copy {
  CopyKind kind = CopyKind::d2d;
  Operand input;
  Operand output;

  friend bool operator==(const Copy&, const Copy&) = default;
};

struct Record {
  EventId event;

  friend bool operator==(const Record&, const Record&) = default;
};

/// A record op that a wait may bind to. `distance` counts runs of the record's segment back from
/// the wait. 0 is the run in which the wait stands or, of another segment, the last one of this
/// step; of a segment that this step has not come to, 1 is the last one of the step before. So a
/// distance is the number of runs of that segment that began after the record's own, and one more
/// where none of them is of this step.
struct Binding {
  OpId record;
  std::int64_t distance = 0;

  friend bool operator==(const Binding&, const Binding&) = default;
};

/// The stream waits for the event's latest record at issue. `bindings` states which record ops
/// that can be. A wait that nothing was recorded for is satisfied where one of its bindings reaches
/// back before the run.
struct Wait {
  EventId event;
  std::vector<Binding> bindings;

  friend bool operator==(const Wait&, const Wait&) = default;
};

/// As Wait, but the host waits before it issues the next op.
struct HostWait {
  EventId event;
  std::vector<Binding> bindings;

  friend bool operator==(const HostWait&, const HostWait&) = default;
};

/// From here on, in this stream's order, the buffer's bytes are its own.
struct Acquire {
  BufferId buffer;

  friend bool operator==(const Acquire&, const Acquire&) = default;
};

struct Release {
  BufferId buffer;

  friend bool operator==(const Release&, const Release&) = default;
};

/// The collectives up to the matching GroupEnd are one launch.
struct GroupBegin {
  CommunicatorId communicator;

  friend bool operator==(const GroupBegin&, const GroupBegin&) = default;
};

struct GroupEnd {
  CommunicatorId communicator;

  friend bool operator==(const GroupEnd&, const GroupEnd&) = default;
};

using OpBody = std::variant<Acquire, Collective, Copy, GroupBegin, GroupEnd, HostWait, Kernel,
                            Record, Release, Wait>;

enum class OpKind {
  acquire,
  collective,
  copy,
  group_begin,
  group_end,
  host_wait,
  kernel,
  record,
  release,
  wait
};

template <>
struct Names<OpKind> {
  static constexpr std::array<std::string_view, 10> values{
      "acquire",   "collective", "copy",   "group_begin", "group_end",
      "host_wait", "kernel",     "record", "release",     "wait"};
};

struct Op {
  OpId id;
  StreamId stream;
  Phase phase = Phase::forward;
  std::optional<UnitId> unit;      ///< whose work it is
  std::optional<GroupId> group{};  ///< whose parameters it gathers, reduces or updates as one
  /// How many microbatches behind the newest is the one that it works on (core/plan/rotation.hpp).
  std::int64_t lag = 0;
  std::string name;  ///< unit and action, also the profiler's range: "layers.3.qkv"
  OpBody body;

  friend bool operator==(const Op&, const Op&) = default;

  [[nodiscard]] OpKind kind() const { return static_cast<OpKind>(body.index()); }
};

}  // namespace mfsdp
