// The ops that every microbatch of a configuration runs one after another, without building a plan.
//
// A search bounds step times by them: whatever hides the rest, these ops wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/plan/config.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Ops of an owner of the model (embedding, blocks, head), as numbers in LeastWork::ops. All of
/// the head's are in `backward`, as in a pipeline.
struct UnitWork {
  std::vector<std::size_t> forward;
  std::vector<std::size_t> backward;
};

struct LeastWork {
  Program program;              ///< the collectives' communicators and mesh; it has no plans
  std::vector<OpBody> ops;      ///< kernels and collectives of the compute stream, each kind once
  std::vector<UnitWork> units;  ///< in the order of the model
};

/// The work of one rank in one microbatch. Stages of a pipeline divide its units among them.
/// Requires a valid configuration. Sizes beyond 63 bits throw OverflowError.
[[nodiscard]] LeastWork least_work(const PlanConfig& config);

/// The configuration that stands for all with equal work: it has no stages, and of the ranks that
/// read other tokens only as many as divide experts.
[[nodiscard]] PlanConfig work_key(PlanConfig config);

/// Gathers of weights in a microbatch, of one stage: equal ones are counted.
struct LeastGathers {
  Program program;  ///< the communicators and mesh; it has no plans
  std::vector<std::pair<Collective, std::int64_t>> gathers;
};

/// Those that a rank certainly does in every microbatch, whatever else it prefetches up to
/// kMostPrefetch units; one stream does them. Without those of expert-parallel groups and of
/// quantised weights. Requirements and errors as those of least_work().
[[nodiscard]] LeastGathers least_gathers(const PlanConfig& config);

/// The configuration that stands for all with equal gathers.
[[nodiscard]] PlanConfig gathers_key(PlanConfig config);

/// Searches try --prefetch up to this with the best combinations.
inline constexpr std::int64_t kMostPrefetch = 3;

}  // namespace mfsdp
