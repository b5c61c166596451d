// A training step on simulated time.
//
//   host     issues ops in plan order, each in the time of Prices::host, if any; a host_wait delays
//            it. No op begins before it was issued
//   streams  run their ops in order; a wait blocks its stream until its record has run
//   kernels  have the rate that concurrent collectives leave: one factor for each collective, and
//            at least 1/4. A collective costs SMs as long as it is resident, and memory traffic in
//            proportion to its rate; both depend on the kernel's class. A GEMM that needs another
//            wave then has the rate of that, if lower. A kernel on a non-compute stream waits for
//            the running GEMM or attention, then runs at full rate and slows compute's kernels down
//   order    with Prices::launches_in_order, a collective begins after those issued before it have
//            begun
//   links    if the demand of collectives, or of copies, exceeds a link, they share it in
//            proportion
//   ranks    run the plan of their class and synchronise in collectives: a collective begins when
//            its last rank arrives, has the rate of its slowest rank's link, and ends on all ranks
//            at once
//   messages a rank's n-th send to a peer on a communicator moves together with that peer's n-th
//            recv from it, when both launches are there and the one before has ended. A launch ends
//            with its last message
//
// An early rank waits inside its launch, as NCCL's kernels do, which spin on their SMs. On that
// rank the collective lasts from its launch on. It counts as communication and slows concurrent
// kernels down by its SMs, but moves no bytes, so it costs nothing on the link and in memory. A
// launch of sends and receives waits likewise, but its wait for a peer does not count as
// communication: where nothing else runs, the rank is idle. That is a pipeline's bubble.
//
// Steps follow each other without a barrier, so a step has no natural start. Let C(k) be the time
// when the last op of step k ends on a rank. The reported step is the second one, in the window
// [C(1), C(2)). The third step runs ahead in it as far as the plan allows, as the second did in the
// first. In steady state C(k + 1) - C(k) repeats, and every nanosecond belongs to one step. With
// jitter there is no steady state; the second step is then one of many possible ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"
#include "sim/simulator/prices.hpp"
#include "sim/simulator/ranks.hpp"

namespace mfsdp {

/// When one instance of a kernel, collective or copy of the second step ran, relative to C(1). Ops
/// that ran ahead, concurrently with the end of the previous step, have a negative start.
struct OpSpan {
  std::uint32_t segment = 0;  ///< position in the plan
  std::uint32_t op = 0;       ///< position in the segment
  std::int64_t instance = 0;  ///< of the segment
  Nanos start;
  Nanos end;
};

/// Differences between ranks in the second step.
struct RankSummary {
  std::int64_t ranks = 1;      ///< of the mesh
  std::int64_t simulated = 1;  ///< of them: one of each class of ranks that behave alike
  /// The rank that `Simulation` describes: the one for which the others wait most; of equals the
  /// one with the most compute, then the first one. Rank 0 if ranks do not differ. With several
  /// classes, a rank of the class that idles least.
  std::int64_t reported = 0;
  /// The criterion of that choice: the sum, over the collectives that it reached last, of the time
  /// since the first rank arrived. It includes hidden and concurrent waits, so it may exceed the
  /// step.
  Nanos waited_for;
  /// Compute without contention: time of a rank's kernels alone.
  Nanos compute_least;
  Nanos compute_mean;  ///< over the ranks of the mesh, rounded down
  Nanos compute_most;
  std::int64_t slowest = 0;  ///< the first rank with `compute_most`
  /// The part of exposed communication that is a wait for other ranks. Early ranks lose more than
  /// that: their waiting launches slow down kernels.
  Nanos waiting_mean;
  Nanos waiting_most;
};

/// Results of one class of ranks: those of its rank for which others wait most.
struct ClassTimes {
  TimeSummary time;
  TrafficSummary traffic;
};

/// Results for the rank that `ranks` names, unless stated otherwise.
struct Simulation {
  /// step = compute + exposed_communication + idle, exactly. Compute is the union of kernels and
  /// copies on streams of role compute; communication is the union of collectives on all streams.
  /// The caller adds the rates (tokens/s, FLOP/s, MFU).
  TimeSummary time;
  TrafficSummary traffic;
  /// Kernels, collectives and copies by start: the complete step if they are at most kMostSpans.
  /// Otherwise only instances 0 and 1 of a repeated segment; `omitted` describes the others.
  std::vector<OpTime> timeline;
  std::vector<OmittedInstances> omitted;
  /// One point for each acquire and release in the window, without host pools; for the same
  /// instances.
  std::vector<MemoryPoint> memory_timeline;
  /// If the points are those of another class than `timeline`: the timeline of their rank.
  std::vector<OpTime> memory_ops;
  /// Largest first. An interval of exposed communication belongs to the collective for which the
  /// compute stream waits. If it waits for none that runs, it belongs to the one with the most time
  /// left.
  std::vector<ExposedUnit> exposed_units;
  std::vector<std::int64_t> exposed_by_communicator;  ///< the same intervals, ns
  /// The complete step if they are at most kMostSpans; else only instances 0 and 1 of a segment.
  std::vector<OpSpan> spans;
  RankSummary ranks;
  std::size_t reported_class = 0;     ///< position of the class of that rank
  std::vector<ClassTimes> classes{};  ///< by class of ranks
};

inline constexpr std::int64_t kMostSpans = 50'000;

/// The plan that the ranks of one class run, and its prices.
struct SimulatedPlan {
  const Program* program = nullptr;
  const Plan* plan = nullptr;  ///< one of the program's plans
  Prices prices;
};

/// The terms of a simulation of ranks that differ.
struct SimulationTerms {
  std::size_t memory_class = 0;  ///< position of the class of `memory_timeline`
  /// The class that will be reported, if that is known: its times of single ops are recorded at
  /// once. Else they take a second run.
  std::optional<std::size_t> likely_class{};
  /// Whether times of single ops and points of memory are reported. Asked after the first run;
  /// empty: they are.
  std::function<bool(const Simulation&)> records{};
};

/// Simulates a plan for each class of ranks. Errors name the op and its fault: an unknown id; a
/// wait for a record that never ran; an acquire of a live buffer, or a release of a dead one; a
/// group that is not closed; a negative price; times beyond 2^63 ns; ranks that wait for each other
/// for ever. Or they name a class without a peer, or a field of `variation`, as documented at
/// partition_ranks().
[[nodiscard]] Result<Simulation> simulate(std::span<const SimulatedPlan> classes,
                                          const RankVariation& variation = {},
                                          const SimulationTerms& terms = {});

/// The same for a plan that all ranks run.
[[nodiscard]] Result<Simulation> simulate(const Program& program, const Plan& plan,
                                          const Prices& prices,
                                          const RankVariation& variation = {});

}  // namespace mfsdp
