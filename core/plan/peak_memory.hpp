// The most bytes that a plan has live, by category. This is a property of the plan: it does not
// depend on times.
//
//   pool of activations   |  ##        sum of live bytes at each position of the pool's
//                         | #####      acquiring stream; its largest is the pool's share
//                         |#########
#pragma once

#include <array>
#include <vector>

#include "core/plan/lifetimes.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

using CategoryBytes = std::array<Bytes, Names<Category>::values.size()>;

/// Persistent buffers and, for each device pool, the live bytes at its peak. No interleaving of the
/// plan has more live; if pools peak at different times, less is live at once. `pools` are a plan's
/// lifetimes. `runtime` is 0, as it is outside the plan.
[[nodiscard]] CategoryBytes peak_memory(const Program& program,
                                        const std::vector<PoolLifetimes>& pools);

[[nodiscard]] Bytes sum_of(const CategoryBytes& categories);

}  // namespace mfsdp
