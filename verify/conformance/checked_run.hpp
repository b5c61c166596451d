// Data that the checks of one run share. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/plan/index.hpp"
#include "verify/conformance/conformance.hpp"
#include "verify/conformance/step_instances.hpp"
#include "verify/findings/finding_list.hpp"

namespace mfsdp {

struct CheckedRun {
  CheckedRun(const Program& of, const Plan& with, const ConformanceSettings& how)
      : program(of),
        plan(with),
        settings(how),
        instances(of, with),
        events(of.events),
        communicators(of.communicators),
        findings(how.most_findings) {}

  const Program& program;
  const Plan& plan;
  const ConformanceSettings& settings;
  StepInstances instances;
  IdIndex<EventId> events;
  IdIndex<CommunicatorId> communicators;
  std::vector<std::int64_t> steps;  ///< the recorded steps, ascending
  FindingList findings;
  Conformance result;

  /// Number of instances of all steps, which are numbered consecutively.
  [[nodiscard]] std::size_t size() const { return instances.size() * steps.size(); }
  [[nodiscard]] Place place(std::size_t number) const {
    return instances.place(number % instances.size(), steps[number / instances.size()]);
  }
};

/// One rank's launches by the number of the instance.
struct RankRecord {
  std::int64_t rank = 0;
  std::vector<const OpLaunch*> launches;  ///< null: not launched
  std::vector<bool> timed;                ///< launched, with possible times
};

/// Assigns each launch of a rank (in the order of issue) to its instance. Finds launches that are
/// not in the plan (MF802), a wrong order (MF803), a wrong stream (MF804) and impossible times
/// (MF809).
[[nodiscard]] RankRecord match_launches(CheckedRun& run, std::span<const OpLaunch> launches);

/// Compares a rank's times with the order of its ops (MF805, MF806, MF807), and finds missing ops
/// (MF801).
void check_order(CheckedRun& run, const RankRecord& record);

/// Compares the times of each collective between its ranks (MF808).
void check_meetings(CheckedRun& run, std::span<const RankRecord> records);

/// An ordering: `then` must not begin before `first` has ended.
struct Edge {
  std::int64_t rank = 0;
  std::size_t first = 0;  ///< instance
  std::size_t then = 0;
  Nanos over;          ///< end of `first`
  Nanos came;          ///< begin of `then`
  bool abuts = false;  ///< always close together: not considered for the closest pair
};
/// Whether the times obey the edge. Counts the edge, and keeps it if it is the closest so far.
[[nodiscard]] bool holds(CheckedRun& run, const Edge& edge);

/// "rank 1, step 3, middle repetition 2"
[[nodiscard]] std::string where(std::int64_t rank, const Place& place);

}  // namespace mfsdp
