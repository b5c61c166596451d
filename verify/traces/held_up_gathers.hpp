// Gathers that compute waited for, and that themselves had waited for a reduction. Private to the
// rules.
#pragma once

#include <vector>

#include "verify/traces/trace_rules.hpp"

namespace mfsdp::traces {

/// A gather that began within `back_to_back` of a reduction's end, though its stream had been free
/// and the reduction had been launched first.
///
///   reduction   #########################
///   gather          ^ launched           |=== gather ===|
///   compute     ###########..........................(stall)####
///                   |<---- waited ----->|
///
/// lost = the smaller of what the gather waited and what compute stood still until its end.
struct HeldUpGather {
  const CollectiveCall* gather = nullptr;
  const CollectiveCall* reduction = nullptr;
  Nanos lost;
  bool launch_known = false;  ///< without it the gather counts as launched when its stream was free
};

/// Those that lost at least `least_hidable`, by begin.
[[nodiscard]] std::vector<HeldUpGather> held_up_gathers(const DeviceContext& device);

}  // namespace mfsdp::traces
