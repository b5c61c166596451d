// Derives from op times when waits ended, and when buffers were acquired and released.
//
//   all_gather  | AG 1 |record e                 a wait ends when what it waits for has ended
//   compute     | F 0       |wait e .acquire h . | F 1 |
//
// Streams run their ops in order, so a record, wait, acquire or release happens when the stream has
// come to it: after the op before it, and after what it waited for.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/plan/plan.hpp"
#include "reports/trace/whole_step.hpp"

namespace mfsdp {

/// The plan's data for an op that takes time.
struct OpWork {
  std::int64_t bytes = 0;  ///< a kernel's reads and writes; of a collective what a rank sends
  std::int64_t flops = 0;
  /// The ops whose end its stream awaits between the op before it and this one, in order.
  std::vector<OpId> waits;
};

/// By op; ops that take no time have no entry.
[[nodiscard]] std::unordered_map<OpId, OpWork> op_facts(const Program& program, const Plan& plan);

/// `waiter` may not begin before `awaited` has ended. Both are positions in whole_step().
struct WaitEdge {
  std::size_t awaited = 0;
  std::size_t waiter = 0;
};

/// A transient buffer's bytes, live in [begin, end).
struct BufferSpan {
  std::size_t buffer = 0;  ///< position in Program::buffers
  std::int64_t slot = 0;   ///< of a buffer with several instances: which
  Nanos begin;
  Nanos end;
};

struct Replay {
  std::vector<WaitEdge> waits;
  /// Within the step, [0, step], by begin; what lives over its end is here at both ends.
  std::vector<BufferSpan> buffers;
};

/// `whole` must be all of the step of `plan`: ops that it lacks count as taking no time. `step`:
/// the step's duration.
[[nodiscard]] Replay replay(const Program& program, const Plan& plan,
                            std::span<const TimedOp> whole, Nanos step);

}  // namespace mfsdp
