// Ops: the entries of a plan. There are ten kinds; each is plain data.
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

/// Bytes that are added to an operand's offset per index on a mesh axis, so that one plan serves
/// all ranks.
struct RankStride {
  Axis axis = Axis::dp_shard;
  std::int64_t bytes = 0;

  friend bool operator==(const RankStride&, const RankStride&) = default;
};

/// A tensor in a buffer. Its first element is at
/// offset + sum over rank_strides of bytes * (the rank's index on that axis).
struct Operand {
  std::string role;  ///< its name in the op: "input", "weight", "output", ...
  Access access = Access::read;
  BufferId buffer;
  std::int64_t offset = 0;  ///< bytes from the buffer's start
  DType dtype = DType::bf16;
  std::vector<std::int64_t> shape;    ///< dims, outermost first
  std::vector<std::int64_t> strides;  ///< elements; empty means contiguous
  std::vector<RankStride> rank_strides = {};

  friend bool operator==(const Operand&, const Operand&) = default;

  /// False for a missing operand, which has no role.
  [[nodiscard]] bool stated() const { return !role.empty(); }
  [[nodiscard]] std::int64_t elements() const;
  /// Bytes that the op accesses: elements() times the element size.
  [[nodiscard]] std::int64_t touched_bytes() const;
  /// Bytes from the first element's start to the last element's end.
  [[nodiscard]] std::int64_t span_bytes() const;
};

/// A step that is added to a number per index on a mesh axis, so that one plan serves all ranks.
struct IndexStep {
  Axis axis = Axis::dp_shard;
  std::int64_t step = 0;

  friend bool operator==(const IndexStep&, const IndexStep&) = default;
};

/// A number that a kernel needs in addition to its operands (kernel_spec.hpp): "m", "beta",
/// "heads", "epsilon", ... Most are integers. On a rank it is
/// value + sum over `per` of step * (the rank's index on that axis); see rank_numbers.hpp.
struct Attribute {
  std::string name;
  Rational value{};
  /// Only of numbers that may differ by rank (KernelSpec::rank_attributes).
  std::vector<IndexStep> per{};

  Attribute() = default;
  Attribute(std::string its_name, Rational number) : name(std::move(its_name)), value(number) {}
  Attribute(std::string its_name, std::int64_t number)
      : name(std::move(its_name)), value{.num = number} {}

  friend bool operator==(const Attribute&, const Attribute&) = default;
};

/// How a memory-bound kernel of another engine accesses memory: its attribute "pattern". Our own
/// kernels have none.
enum class AccessPattern { contiguous, strided, pieces };

struct Kernel {
  KernelKind kind = KernelKind::gemm;
  std::vector<Operand> operands;
  std::vector<Attribute> attributes = {};  ///< sorted by name
  std::int64_t flops = 0;

  friend bool operator==(const Kernel&, const Kernel&) = default;

  /// The attribute's value, or `otherwise` if the kernel has no integer of that name. A number
  /// that differs by rank has its value on ranks with index 0.
  [[nodiscard]] std::int64_t attribute(std::string_view name, std::int64_t otherwise = 0) const;
  /// The attribute of that name, or null.
  [[nodiscard]] const Attribute* find_attribute(std::string_view name) const;
  /// Bytes read and written, each operand once per direction, without scratch. Operands with a
  /// capacity for more rows than usual count the usual ones (usual_rows()). A kernel that accesses
  /// only part of an operand (rows of an embedding) has the attribute "bytes" instead.
  [[nodiscard]] std::int64_t bytes() const;
};

/// all_to_all: rank i receives the i-th part of every rank's input, in the order of the ranks.
/// shift: each rank receives the input of the rank before it, the first one that of the last.
/// `send` and `recv` are point to point, between two ranks of the communicator.
enum class CollectiveKind { all_gather, all_reduce, reduce_scatter, all_to_all, shift, send, recv };

constexpr auto value_names(CollectiveKind) {
  return name_array("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "shift", "send",
                    "recv");
}

[[nodiscard]] constexpr bool is_point_to_point(CollectiveKind kind) {
  return kind == CollectiveKind::send || kind == CollectiveKind::recv;
}

/// The peer of a send or a recv: the rank `step` indices further along an axis of the communicator;
/// backward if negative. Indices do not wrap around.
struct PeerStep {
  Axis axis = Axis::pp;
  std::int64_t step = 1;

  friend bool operator==(const PeerStep&, const PeerStep&) = default;
};

/// `max`: of an all_reduce of fp32, elementwise; NaN if any is NaN.
enum class Reduction { none, sum, max };

constexpr auto value_names(Reduction) { return name_array("none", "sum", "max"); }

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
  Operand input;                   ///< a recv has none
  Operand output;                  ///< a send has none
  std::optional<PeerStep> peer{};  ///< only for send and recv

  friend bool operator==(const Collective&, const Collective&) = default;

  /// The sizes of the operands that follow from `count` and the number of ranks; not for send and
  /// recv.
  [[nodiscard]] CollectiveSizes sizes(std::int64_t ranks) const;
};

enum class CopyKind { d2d, d2h, h2d };

constexpr auto value_names(CopyKind) { return name_array("d2d", "d2h", "h2d"); }

/// Where the host's memory is a port, the host fills it before an h2d copy, or reads it after a d2h
/// copy; before it issues the copy again it waits until the last one has ended. All other copies
/// are ops of their stream as kernels are.
struct Copy {
  CopyKind kind = CopyKind::d2d;
  Operand input;
  Operand output;

  friend bool operator==(const Copy&, const Copy&) = default;

  /// The operand in the host's memory, or null.
  [[nodiscard]] const Operand* on_host() const {
    if (kind == CopyKind::d2d) return nullptr;
    return kind == CopyKind::h2d ? &input : &output;
  }
};

struct Record {
  EventId event;

  friend bool operator==(const Record&, const Record&) = default;
};

/// A record op to which a wait may bind. `distance` counts runs of the record's pass backwards from
/// the wait; ops of a segment's own are a pass that runs with it. 0 is the run of the wait itself
/// or, for another pass, its last run in this step. For a pass that has not run yet in this step, 1
/// is its last run in the step before. So the distance is the number of runs of that pass that
/// began after the record's run, plus one if none of them is in this step. A wait in a pass that is
/// called at several places has the bindings of all of them.
struct Binding {
  OpId record;
  std::int64_t distance = 0;

  friend bool operator==(const Binding&, const Binding&) = default;
};

/// The stream waits for the event's latest record at issue. `bindings` lists the record ops that
/// this can be. If nothing was recorded yet, the wait is satisfied provided that one of its
/// bindings refers to a time before the run.
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

/// From here on, in this stream's order, the bytes belong to the buffer.
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

constexpr auto value_names(OpKind) {
  return name_array("acquire", "collective", "copy", "group_begin", "group_end", "host_wait",
                    "kernel", "record", "release", "wait");
}

struct Op {
  OpId id;
  StreamId stream;
  Phase phase = Phase::forward;
  std::optional<UnitId> unit;      ///< the unit that it computes or moves
  std::optional<GroupId> group{};  ///< the group that it gathers, reduces or updates as one
  /// 0: it works on the microbatch of its pass's call, which is the newest unless that has a lag;
  /// l: on the l-th before it (core/plan/rotation.hpp).
  std::int64_t lag = 0;
  std::string name;  ///< unit and action, also the range in profilers: "layers.3.qkv"
  OpBody body;

  friend bool operator==(const Op&, const Op&) = default;

  [[nodiscard]] OpKind kind() const { return static_cast<OpKind>(body.index()); }
};

}  // namespace mfsdp
