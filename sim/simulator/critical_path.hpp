// Why a step takes as long as it does: the longest chain of ops that had to follow each other.
//
// The graph has one vertex for each op instance of the reported step and an edge wherever one had
// to end before another began: stream order, record to wait, communicator order, host waits. A
// vertex weighs what the op took in the simulation, contention and shared links included.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "sim/simulator/simulation.hpp"

namespace mfsdp {

/// A kernel, collective or copy on the path.
struct CriticalOp {
  OpId op;
  std::string name;
  std::string unit;  ///< "no unit" where it has none
  std::string kind;  ///< kernel, collective or copy kind
  std::string segment;
  std::int64_t instance = 0;
  Nanos duration;
};

struct PathShare {
  std::string name;
  Nanos time;
};

struct CriticalPath {
  std::vector<CriticalOp> ops;  ///< in the order in which they ran
  /// Sum of durations. Less than the step where the path waits for the step before; more where its
  /// ends run beside the steps before and after.
  Nanos length;
  /// The part of `length` that ran before the step began, under the end of the step before.
  Nanos before_step;
  std::vector<PathShare> by_unit;  ///< largest first
  std::vector<PathShare> by_kind;  ///< largest first
  std::string bounding_unit;       ///< the unit with the largest share; empty for an empty path
  /// True where the step has more than kMostSpans timed ops (or a multiple of it in all): repeated
  /// segments are then taken to run twice, and `length` is that of the shorter step.
  bool abridged = false;
};

/// The longest path through `plan`, which `simulation` is of. Edges from earlier steps are left
/// out.
[[nodiscard]] CriticalPath critical_path(const Program& program, const Plan& plan,
                                         const Simulation& simulation);

}  // namespace mfsdp
