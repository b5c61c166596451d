// Gathers that waited for a reduction while compute waited for them. Private to the rules.
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
/// lost = the smaller of the gather's waiting time and of compute's idle time until its end.
struct HeldUpGather {
  const CollectiveCall* gather = nullptr;
  const CollectiveCall* reduction = nullptr;
  Nanos lost;
  bool launch_known = false;  ///< without it the gather counts as launched when its stream was free
};

/// The gathers with a loss of at least `least_hidable`, by begin.
[[nodiscard]] std::vector<HeldUpGather> held_up_gathers(const DeviceContext& device);

}  // namespace mfsdp::traces
