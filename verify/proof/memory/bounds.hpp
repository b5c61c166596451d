// The largest amounts of live memory, over all interleavings.
//
// Two lifetimes can meet unless the release of one is before the acquire of the other. If all
// acquires of a pool are on one chain, lifetimes are intervals of the chain's positions, from the
// acquire to the first op that knows of the release. The most that can be live is the fullest
// position: all buffers that are live there can be live together. Acquires on several chains are
// counted chain by chain and added up, which no interleaving exceeds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

struct PoolBound {
  std::string name;
  Bytes height;       ///< as the plan states
  Bytes lower_bound;  ///< largest sum of aligned live bytes, over all interleavings of all plans

  friend bool operator==(const PoolBound&, const PoolBound&) = default;
};

/// Bounds that hold in every interleaving of the plan that trains, unless stated otherwise.
struct Bounds {
  std::int64_t live_full_weights = 0;    ///< gathered weight buffers at once
  std::int64_t live_full_gradients = 0;  ///< full gradient buffers at once
  Bytes peak;                            ///< device bytes: persistent, and each pool at its fullest
  std::vector<PoolBound> pools;
  std::int64_t concurrent_collectives = 0;  ///< that may be enabled at once, in any plan
  std::vector<OpId> redundant_waits;        ///< that order nothing new, in any plan

  friend bool operator==(const Bounds&, const Bounds&) = default;
};

/// The most that one plan has live in a pool.
struct PoolPeak {
  Bytes bytes;                 ///< exact sizes of transient buffers
  Bytes aligned;               ///< the same with each size rounded up to the pool's alignment
  std::int64_t weights = 0;    ///< buffers of category unsharded_weight
  std::int64_t gradients = 0;  ///< buffers of category unsharded_grad
};

/// One for each pool of the program.
[[nodiscard]] std::vector<PoolPeak> pool_peaks(const UnrolledPlan& unrolled);

/// The program's bounds from the peaks of its plans, and what of them is not as it should be
/// (MF601, MF602, MF603). `peaks` are in the order of Program::plans.
[[nodiscard]] Bounds bounds_of(const Program& program, const ProgramIndex& index,
                               const std::vector<std::vector<PoolPeak>>& peaks,
                               FindingList& findings);

}  // namespace mfsdp
