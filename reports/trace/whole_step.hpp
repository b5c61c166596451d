// All of a step, microbatch by microbatch.
//
//   stored    | first 0 | middle 0 | middle 1 |     omitted: 2      | last 0 |
//   shown     | first 0 | middle 0 | middle 1 | middle 2 | middle 3 | last 0 |
//
// A record of a long step omits instances of a segment that runs often, and states their number and
// distance. They are shown as shifted copies of the last instance that it keeps. In steady state
// that is exact.
#pragma once

#include <cstdint>
#include <vector>

#include "reports/record/result.hpp"

namespace mfsdp {

/// One instance of an op.
struct TimedOp {
  const OpTime* op =
      nullptr;  ///< of the run's timeline; its instance and times are the stored ones
  std::int64_t instance = 0;
  Nanos start;
  Nanos end;
  bool omitted = false;  ///< its times were not kept: another instance's, shifted
};

/// Ops of the run's timeline and the omitted ones, by start and end. Where a kept op and an omitted
/// one would overlap on a stream, the omitted one is cut. `run` must outlive the result.
[[nodiscard]] std::vector<TimedOp> whole_step(const RunFigures& run);

/// When the step of the timeline ends. A measured one ends with its last op: what others have left
/// may have a timeline without the step's time.
[[nodiscard]] Nanos end_of_step(const RunResult& run);

}  // namespace mfsdp
