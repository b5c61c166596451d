// Checks a recorded run against its plan: exactly the plan's ops, in its order and on its streams,
// each after the ops that it must wait for.
//
// Rules on the times of each rank:
//   issue     an op begins after its issue, and issues are in the plan's order
//   stream    an op begins after the op before it on its stream
//   wait      ops after a wait begin after all ops before the awaited record have ended
//   host      the host issues ops after a host_wait when that wait has ended, and a copy of host
//             memory when the previous instance of that copy has ended
//   drain     ops issued after the host has waited for all streams begin after all earlier ops
//   turn      collectives of one communicator do not overlap
// and between ranks:
//   meeting   a collective ends on no rank before all ranks have reached it
//
// A conforming run shows one of the orders that the plan allows. verify/proof proves that all
// allowed orders are correct.
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
  Nanos resolution{};       ///< of the run's clock: an op may appear to begin early by this time
  bool work_alone = false;  ///< only kernels, collectives and copies are recorded
  std::size_t most_findings = 100;  ///< per rule; further ones are omitted
};

/// Two ops of different streams or ranks, or an op and the host.
struct ClosestPair {
  Nanos slack;  ///< from the end of the first op to the begin of the second; negative: too early
  std::int64_t rank = 0;
  Place first;
  Place then;
};

struct Conformance {
  std::vector<Finding> findings;  ///< by rule
  std::int64_t ranks = 0;         ///< with records
  std::int64_t steps = 0;
  std::int64_t launches = 0;
  std::int64_t edges = 0;  ///< orderings that were compared with times
  std::optional<ClosestPair> closest;
};

/// Compares `launches` (of each rank in the order of issue) with `plan`, one of the program's, for
/// the steps that the launches name. A wait may be missing if its event record lies outside the
/// recorded steps or before a drain: it has nothing to wait for. Errors: no launches; too many ops.
/// The program's ids must resolve (core/plan/check.hpp).
[[nodiscard]] Result<Conformance> check_conformance(const Program& program, const Plan& plan,
                                                    std::span<const OpLaunch> launches,
                                                    const ConformanceSettings& settings = {});

/// Two lines that summarise the checks.
[[nodiscard]] std::string render_summary(const Conformance& conformance);

}  // namespace mfsdp
