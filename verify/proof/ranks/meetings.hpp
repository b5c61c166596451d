// The collectives of a plan, numbered by communicator: the n-th of a communicator here is the n-th
// on every other rank of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// The fields of a collective that must agree on all of its ranks.
struct Signature {
  CollectiveKind kind = CollectiveKind::all_gather;
  std::int64_t count = 0;
  DType dtype = DType::bf16;
  Reduction reduction = Reduction::none;
  std::int64_t repeat = 1;  ///< of its segment: how often it is issued in a step

  friend auto operator<=>(const Signature&, const Signature&) = default;
};

struct PlannedMeeting {
  std::uint32_t instance = 0;
  std::uint32_t communicator = 0;
  std::uint32_t number = 0;  ///< among those of its communicator
};

/// All collectives of an unrolled plan, in host order.
[[nodiscard]] std::vector<PlannedMeeting> meetings_of(const UnrolledPlan& unrolled);

[[nodiscard]] Signature signature_of(const UnrolledPlan& unrolled, const PlannedMeeting& meeting);

/// "all_gather of 64 bf16, reduction none, 1 times a step"
[[nodiscard]] std::string to_text(const Signature& signature);

/// Collectives that wait for each other in this cycle; with `launches_in_order`, only if each device
/// runs them in launch order.
[[nodiscard]] Finding deadlock_finding(bool launches_in_order, std::vector<Place> cycle);

/// Whether the host's order of launches puts the one before the other: not inside a group.
[[nodiscard]] bool launched_apart(const UnrolledPlan& unrolled, const PlannedMeeting& a,
                                  const PlannedMeeting& b);

}  // namespace mfsdp
