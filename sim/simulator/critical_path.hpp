// The critical path of a step: the longest chain of dependent ops.
//
// The graph has one vertex for each op instance of the reported step, and an edge for each
// dependency: stream order, record to wait, communicator order, host waits. The weight of a vertex
// is the op's duration in the simulation, with contention and shared links. For a job of several
// classes it has the ops of one rank. A receive has the time from its launch on, so it includes the
// work that the peer still had to do.
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
  std::string unit;  ///< "no unit" if it has none
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
  /// Sum of durations. Less than the step if the path waits for the previous step; more if its ends
  /// run concurrently with the previous and the next step.
  Nanos length;
  /// The part of `length` before the step began, concurrent with the end of the previous step.
  Nanos before_step;
  std::vector<PathShare> by_unit;  ///< largest first
  std::vector<PathShare> by_kind;  ///< largest first
  std::string bounding_unit;       ///< the unit with the largest share; empty for an empty path
  /// True if the step has more than kMostSpans timed ops (or a multiple of that number of ops in
  /// total). Repeated segments then count as run twice, and `length` is that of the shorter step.
  bool abridged = false;
};

/// The longest path through `plan`, the plan of `simulation`. Edges from earlier steps are ignored.
[[nodiscard]] CriticalPath critical_path(const Program& program, const Plan& plan,
                                         const Simulation& simulation);

}  // namespace mfsdp
