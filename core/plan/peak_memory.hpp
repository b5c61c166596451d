// The most bytes that a plan has live, by what they are for. A property of the plan alone: it does
// not depend on how fast anything is.
//
//   pool of activations   |  ##        sum of live bytes at each position of the pool's
//                         | #####      acquiring stream; its largest is the pool's share
//                         |#########
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/lifetimes.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

using CategoryBytes = std::array<Bytes, Names<Category>::values.size()>;

struct PeakMemory {
  CategoryBytes categories{};  ///< `runtime` stays 0: it lies outside the plan
  std::string op;              ///< that uses what the fullest pool holds; empty without pools
};

/// Persistent buffers and, for each device pool, what it holds where it is fullest. No interleaving
/// of the plan has more live; pools that are fullest at different times have less live together.
/// `pools` are the plan's lifetimes.
[[nodiscard]] PeakMemory peak_memory(const Program& program, const Plan& plan,
                                     const std::vector<PoolLifetimes>& pools);

[[nodiscard]] Bytes sum_of(const CategoryBytes& categories);

}  // namespace mfsdp
