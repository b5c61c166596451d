// What the engine asks of a cost model: how long each op of a plan takes when it runs alone.
#pragma once

#include <cstdint>
#include <functional>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Shares and rates are fixed-point: this is 1.
inline constexpr std::int64_t kOne = std::int64_t{1} << 20;

struct CollectivePrice {
  Nanos duration;             ///< alone on its link, latency included
  Nanos latency;              ///< the part that moves no bytes; at most `duration`
  std::int64_t slowdown = 0;  ///< parts per 2^20 that a kernel beside it loses
  int link = 0;               ///< 0 inside a node, 1 network; collectives of one link share it
};

/// Each is called once for each op of the plan, not for each instance.
struct Prices {
  std::function<Nanos(const Kernel&)> kernel;
  std::function<CollectivePrice(const Collective&, const Communicator&)> collective;
  std::function<Nanos(const Copy&)> copy;
};

}  // namespace mfsdp
