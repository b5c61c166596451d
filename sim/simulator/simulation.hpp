// A training step on simulated time.
//
//   host     issues ops in plan order, each in the time that Prices::host gives, if any; a
//   host_wait
//            holds it back. No op begins before it was issued
//   streams  run their ops in order; a wait holds its stream until its record has run
//   kernels  run at the product of what each collective beside them leaves, at least 1/4: it takes
//            SMs as long as it is there, memory traffic in proportion to how fast it goes; by the
//            kernel's class. Where products need another wave then, at what that leaves, if less.
//            A kernel of a stream that does not compute waits for the product or attention that
//            runs, then goes at its own speed and leaves compute's kernels a part of theirs
//   order    where Prices::launches_in_order says so, a collective begins when those issued before
//            it have
//   links    collectives, or copies, that want more than a link has share it in proportion
//   ranks    run the same plan and meet in collectives: one begins when its last rank has come to
//            it, goes at the pace of its slowest rank's link, and ends on all ranks at once
//
// A rank that is early waits inside its launch, as NCCL's kernels do, which spin on their SMs: on
// that rank the collective lasts from its launch on, counts as communication and slows kernels
// beside it by its SMs, but moves no bytes, so it takes nothing from link and memory.
//
// Steps follow each other without a barrier, so a step has no natural start. Let C(k) be the time
// when the last op of step k ends. The reported step is the second one, in the window
// [C(1), C(2)); the third step runs ahead in it as far as the plan allows, as the second did in
// the first. In steady state C(k + 1) - C(k) repeats, and every nanosecond belongs to one step.
// With jitter there is no steady state: the second step is then one of many that may happen. C is
// each rank's own.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"
#include "sim/simulator/prices.hpp"
#include "sim/simulator/ranks.hpp"

namespace mfsdp {

/// When one instance of a kernel, collective or copy of the second step ran, relative to C(1).
/// Ops that ran ahead, under the end of the step before, start below 0.
struct OpSpan {
  std::uint32_t segment = 0;  ///< position in the plan
  std::uint32_t op = 0;       ///< position in the segment
  std::int64_t instance = 0;  ///< of the segment
  Nanos start;
  Nanos end;
};

/// What ranks have in common and how they differ in the second step.
struct RankSummary {
  std::int64_t ranks = 1;      ///< of the mesh
  std::int64_t simulated = 1;  ///< of them: one of each class of ranks that behave alike
  /// The rank that `Simulation` describes: the one that others wait for most; of equals the one
  /// with most compute, and of those the first. Rank 0 where ranks do not differ.
  std::int64_t reported = 0;
  /// How it was chosen: the sum, over the collectives that it came to last, of the time since the
  /// first rank came. Hidden waits and waits beside each other all count, so it may exceed the
  /// step.
  Nanos waited_for;
  /// Compute less contention: what a rank's kernels take alone.
  Nanos compute_least;
  Nanos compute_mean;  ///< over the ranks of the mesh, rounded down
  Nanos compute_most;
  std::int64_t slowest = 0;  ///< the first rank with `compute_most`
  /// The part of exposed communication that waits for other ranks. Early ranks lose more than that:
  /// the launches that wait slow their kernels.
  Nanos waiting_mean;
  Nanos waiting_most;
};

/// Of the rank that `ranks` names, except where it says otherwise.
struct Simulation {
  /// step = compute + exposed_communication + idle, exactly. Compute is the union of kernels and
  /// copies on streams of role compute; communication the union of collectives on all streams. The
  /// rates (tokens/s, FLOP/s, MFU) are left to the caller.
  TimeSummary time;
  TrafficSummary traffic;
  /// Kernels, collectives and copies by start: all of the step when they are at most kMostSpans;
  /// else of a repeated segment only instances 0 and 1, and what `omitted` says of the others.
  std::vector<OpTime> timeline;
  std::vector<OmittedInstances> omitted;
  /// One point for each acquire and release in the window, host pools excluded; of the same
  /// instances.
  std::vector<MemoryPoint> memory_timeline;
  /// Largest first. A stretch of exposed communication belongs to the collective that the compute
  /// stream waits for or, where it waits for none that runs, to the one with most time left.
  std::vector<ExposedUnit> exposed_units;
  /// All of the step when they are at most kMostSpans; else only instances 0 and 1 of a segment.
  std::vector<OpSpan> spans;
  RankSummary ranks;
};

inline constexpr std::int64_t kMostSpans = 50'000;

/// Simulates `plan`, one of the program's plans. Errors name the op: an id that does not resolve, a
/// wait for a record that never ran, an acquire of a live buffer or release of a dead one, a group
/// that does not close, a negative price, times beyond 2^63 ns; or a field of `variation`, as
/// partition_ranks() states.
[[nodiscard]] Result<Simulation> simulate(const Program& program, const Plan& plan,
                                          const Prices& prices,
                                          const RankVariation& variation = {});

}  // namespace mfsdp
