// Checks a recorded run against its plan: the plan's ops and no others, in its order and on its
// streams, each after the ops for which it has to wait.
//
// Rules on the times of each rank:
//   issue     an op begins after its issue, and issues are in the plan's order
//   stream    an op begins after the op before it on its stream
//   wait      ops after a wait begin after all ops before the awaited record have ended
//   host      the host issues ops after a host_wait when that wait has ended, and a copy of its
//             memory after the last instance of that copy
//   drain     ops issued after the host has waited for all streams begin after all earlier ops
//   turn      collectives of one communicator do not overlap
// and between ranks:
//   meeting   a collective ends on no rank before all ranks have reached it
//
// A conforming run shows one of the orders that the plan allows. verify/proof proves that all of
// them are right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/op_launch.hpp"
#include "core/plan/plan.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp {

struct ConformanceSettings {
  Nanos resolution{};       ///< of the run's clock: an op may seem to begin early by so much
  bool work_alone = false;  ///< the record is of kernels, collectives and copies alone
  std::size_t most_findings = 100;  ///< per rule; further ones are left out
};

/// Two ops of different streams or ranks, or an op and the host.
struct ClosestPair {
  Nanos slack;  ///< from what had to come first to what had to wait for it; negative: too early
  std::int64_t rank = 0;
  Place first;
  Place then;
};

struct Conformance {
  std::vector<Finding> findings;  ///< by rule
  std::int64_t ranks = 0;         ///< that the record is of
  std::int64_t steps = 0;
  std::int64_t launches = 0;
  std::int64_t edges = 0;  ///< orderings that were held against times
  std::optional<ClosestPair> closest;
};

/// Holds `launches` (of each rank in the order of issue) against `plan`, one of the program's. The
/// steps are those that the launches name. A wait may be missing where its record lies outside of
/// the record of the run or before a drain: nothing is left to wait for.
/// Errors: no launches; more ops than can be held against times. The program's ids resolve
/// (core/plan/check.hpp).
[[nodiscard]] Result<Conformance> check_conformance(const Program& program, const Plan& plan,
                                                    std::span<const OpLaunch> launches,
                                                    const ConformanceSettings& settings = {});

/// What was checked, in two lines.
[[nodiscard]] std::string render_summary(const Conformance& conformance);

}  // namespace mfsdp
