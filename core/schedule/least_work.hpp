// The ops that every microbatch of a configuration runs one after another, without building a plan.
//
// A search bounds step times by them: whatever hides the rest, these ops wait for each other.
#pragma once

#include <cstddef>
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

}  // namespace mfsdp
