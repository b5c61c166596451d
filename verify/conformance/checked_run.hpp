// What the checks of one run share. Internal to this folder.
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
  std::vector<std::int64_t> steps;  ///< of the record, ascending
  FindingList findings;
  Conformance result;

  /// Instances of all steps are numbered one after the other.
  [[nodiscard]] std::size_t size() const { return instances.size() * steps.size(); }
  [[nodiscard]] Place place(std::size_t number) const {
    return instances.place(number % instances.size(), steps[number / instances.size()]);
  }
};

/// What one rank launched, by the number of the instance.
struct RankRecord {
  std::int64_t rank = 0;
  std::vector<const OpLaunch*> launches;  ///< null: not launched
  std::vector<bool> timed;                ///< launched, and its times are possible
};

/// Names each launch of a rank (in the order of issue) after the instance that it is. Finds
/// launches that the plan does not have (MF802), the wrong order (MF803), the wrong stream (MF804)
/// and times that nothing can have (MF809).
[[nodiscard]] RankRecord match_launches(CheckedRun& run, std::span<const OpLaunch> launches);

/// Holds a rank's times against all that orders its ops: MF805, MF806, MF807; and finds what is
/// missing (MF801).
void check_order(CheckedRun& run, const RankRecord& record);

/// Holds the times of each collective on all its ranks against each other (MF808).
void check_meetings(CheckedRun& run, std::span<const RankRecord> records);

/// `then` must not come before `first` is over.
struct Edge {
  std::int64_t rank = 0;
  std::size_t first = 0;  ///< instance
  std::size_t then = 0;
  Nanos over;          ///< when the first one was
  Nanos came;          ///< when the other one did
  bool abuts = false;  ///< they follow each other closely whatever happens: never the closest
};
/// Whether it does not. Counts the edge, and keeps it where it is the closest so far.
[[nodiscard]] bool holds(CheckedRun& run, const Edge& edge);

/// "rank 1, step 3, middle repetition 2"
[[nodiscard]] std::string where(std::int64_t rank, const Place& place);

}  // namespace mfsdp
