// The most bytes that a plan has live, by what they are for. A property of the plan alone: it does
// not depend on how fast anything is.
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

/// Persistent buffers and, for each device pool, what it holds where it is fullest. No interleaving
/// of the plan has more live; pools that are fullest at different times have less live together.
/// `pools` are a plan's lifetimes. `runtime` stays 0: it lies outside the plan.
[[nodiscard]] CategoryBytes peak_memory(const Program& program,
                                        const std::vector<PoolLifetimes>& pools);

[[nodiscard]] Bytes sum_of(const CategoryBytes& categories);

}  // namespace mfsdp
