// A plan with everything looked up once for one rank, so that issuing an op allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/index.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/operand_view.hpp"

namespace mfsdp {

/// An op of the plan on one rank. Lives as long as its BoundPlan, at one address.
struct BoundOp {
  const Op* op = nullptr;               ///< its name is the range's name on every timeline
  std::size_t stream = 0;               ///< position in Program::streams
  std::size_t event = 0;                ///< record, wait, host_wait: position in Program::events
  std::size_t communicator = 0;         ///< collective, group: position in Program::communicators
  std::vector<OperandView> operands{};  ///< kernel: the plan's; collective, copy: input, output
  std::span<std::byte> buffer{};        ///< acquire, release: the buffer's bytes
};

struct BoundSegment {
  std::int64_t repeat = 1;
  std::vector<BoundOp> ops;  ///< in host order
};

struct BoundPlan {
  const Plan* plan = nullptr;
  std::vector<BoundSegment> segments;
};

/// Where a rank's pools lie: first bytes, in the order of Program::pools.
using PoolBases = std::vector<std::byte*>;

/// Resolves ids to positions and operands to addresses.
class PlanBinder {
 public:
  /// `rank` of the world.
  PlanBinder(const Program& program, PoolBases bases, std::int64_t rank);

  /// Errors name the op and the operand: an id that the program lacks, or a collective whose
  /// operands do not match its count.
  [[nodiscard]] Result<BoundPlan> bind(const Plan& plan);

  /// A buffer's bytes; null and empty for an id that the program lacks.
  [[nodiscard]] std::span<std::byte> buffer_bytes(BufferId id) const;

 private:
  [[nodiscard]] Result<BoundOp> bind(const Op& op);
  [[nodiscard]] Result<OperandView> view(const Operand& operand);

  const Program& program_;
  PoolBases bases_;
  std::int64_t rank_;
  IdIndex<StreamId> streams_;
  IdIndex<EventId> events_;
  IdIndex<CommunicatorId> communicators_;
  IdIndex<PoolId> pools_;
  IdIndex<BufferId> buffers_;
  std::deque<std::vector<std::int64_t>> strides_;  ///< those of contiguous operands
};

}  // namespace mfsdp
