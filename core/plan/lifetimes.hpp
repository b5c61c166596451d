// Lifetimes of transient buffers over all interleavings: buffers may share bytes unless these
// overlap.
//
// A buffer is live from its acquire until the acquiring stream has waited for its release.
// Positions count the ops of that stream within one step. If two lifetimes are disjoint, every run
// releases one buffer before it acquires the other; buffers whose lifetimes overlap can all be live
// at once.
//
//   reduce_scatter   ........ RS h ..... release h  record e
//   compute          acquire h . B 2 . acquire 2 . . . . . . wait e . acquire 1
//   lifetime of h    [--------------------------------------)
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Half-open range of positions in which bytes are live.
struct Lifetime {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  friend bool operator==(const Lifetime&, const Lifetime&) = default;
};

/// Those of one instance of a buffer.
struct BufferLifetimes {
  BufferId buffer;
  std::vector<Lifetime> lifetimes;  ///< sorted and disjoint
};

/// The transient buffers of one pool that a plan uses, each instance by itself, in the order of
/// their first acquire.
struct PoolLifetimes {
  PoolId pool;
  std::int64_t length = 0;  ///< positions of one step on the pool's acquiring stream
  std::vector<BufferLifetimes> buffers;
};

/// Lifetimes in the steady state of a plan, wrapped at the end of the step. Errors: a buffer that
/// is acquired twice or never released, or a pool whose buffers are acquired on several streams.
[[nodiscard]] Result<std::vector<PoolLifetimes>> buffer_lifetimes(const Program& program,
                                                                  const Plan& plan);

/// The most buffers of a category that are live at once among these lifetimes of a plan.
[[nodiscard]] std::int64_t max_live_buffers(const Program& program,
                                            const std::vector<PoolLifetimes>& pools,
                                            Category category);

/// The most buffers of a category that are live at once in any interleaving of the plan.
[[nodiscard]] Result<std::int64_t> max_live_buffers(const Program& program, const Plan& plan,
                                                    Category category);

}  // namespace mfsdp
