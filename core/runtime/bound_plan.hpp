// A plan with everything looked up once for one rank, so that issuing an op allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/index.hpp"
#include "core/plan/instances.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/operand_view.hpp"

namespace mfsdp {

/// An op of the plan on one rank, at one turn of what it uses. Lives as long as its BoundPlan, at
/// one address.
struct BoundOp {
  const Op* op = nullptr;  ///< its name is the range's name on every timeline
  /// Kernel: the op's, with its numbers of this rank.
  const Kernel* kernel = nullptr;
  std::size_t stream = 0;        ///< position in Program::streams
  std::size_t event = 0;         ///< record, wait, host_wait: place in the program's event_list()
  std::size_t communicator = 0;  ///< collective, group: position in Program::communicators
  std::int64_t peer = 0;         ///< send, recv: the other rank, of the world
  /// Kernel: the plan's. Collective, copy: input, output; a send has its input only, a recv its
  /// output.
  std::vector<OperandView> operands{};
  std::span<std::byte> buffer{};  ///< acquire, release: the buffer's bytes
};

/// The bound ops of one op in a list. Buffers and events with several instances rotate by
/// microbatch (core/plan/rotation.hpp), so the op has a bound one for each turn until all of them
/// begin again: the least common multiple of their instances.
struct ListedOp {
  std::size_t first = 0;  ///< position of its turn 0 in BoundList::ops; the others follow
  std::int64_t turns = 1;
  std::int64_t lag = 0;  ///< of the op itself
};

/// A list of the plan's ops (core/plan/instances.hpp).
struct BoundList {
  std::int64_t runs = 1;       ///< in a step
  std::vector<ListedOp> list;  ///< in host order
  std::vector<BoundOp> ops;    ///< those of the list, each at every turn

  [[nodiscard]] const BoundOp& first_turn(const ListedOp& listed) const {
    return ops[listed.first];
  }
  /// The op to issue when `begun` microbatches of the step have begun, in a call with that lag.
  [[nodiscard]] const BoundOp& at(const ListedOp& listed, std::int64_t begun,
                                  std::int64_t lag) const {
    return ops[listed.first +
               static_cast<std::size_t>(instance_of(begun, lag + listed.lag, listed.turns))];
  }
};

struct BoundSegment {
  std::int64_t repeat = 1;
  std::int64_t microbatches = 0;  ///< that begin in each repetition
  std::vector<ListCall> calls;    ///< in host order
};

struct BoundPlan {
  const Plan* plan = nullptr;
  std::vector<BoundList> lists;  ///< in the numbering of core/plan/instances.hpp
  std::vector<BoundSegment> segments;
};

/// All instances of the program's events, each event's in order: the position in Program::events of
/// each.
[[nodiscard]] std::vector<std::size_t> event_list(const Program& program);

/// Where a rank's pools lie: first bytes, in the order of Program::pools.
using PoolBases = std::vector<std::byte*>;

/// Resolves ids to positions and operands to addresses.
class PlanBinder {
 public:
  /// `rank` of the world.
  PlanBinder(const Program& program, PoolBases bases, std::int64_t rank);

  /// Errors name the op and the operand: an id that the program lacks, a collective whose operands
  /// do not match its count, a peer that does not exist, or a rotation that is too long.
  [[nodiscard]] Result<BoundPlan> bind(const Plan& plan);

  /// The bytes of a buffer's first instance; null and empty for an id that the program lacks.
  [[nodiscard]] std::span<std::byte> buffer_bytes(BufferId id) const { return bytes_at(id, 0); }

 private:
  [[nodiscard]] Result<void> bind(const Op& op, BoundList& into);
  /// At one turn of its ListedOp.
  [[nodiscard]] Result<BoundOp> bind(const Op& op, std::int64_t turn);
  [[nodiscard]] Result<OperandView> view(const Operand& operand, std::int64_t turn);
  /// The bytes of the buffer's instance at that turn.
  [[nodiscard]] std::span<std::byte> bytes_at(BufferId id, std::int64_t turn) const;
  /// How many instances the op uses in rotation: see ListedOp.
  [[nodiscard]] Result<std::int64_t> turns_of(const Op& op) const;
  [[nodiscard]] Result<std::int64_t> peer_of(const PeerStep& step) const;

  const Program& program_;
  PoolBases bases_;
  std::int64_t rank_;
  IdIndex<StreamId> streams_;
  IdIndex<EventId> events_;
  IdIndex<CommunicatorId> communicators_;
  IdIndex<PoolId> pools_;
  IdIndex<BufferId> buffers_;
  std::vector<std::size_t> first_instances_;       ///< by event: its place in the event_list()
  std::deque<std::vector<std::int64_t>> strides_;  ///< those of contiguous operands
  std::deque<Kernel> kernels_;                     ///< with this rank's numbers
};

}  // namespace mfsdp
