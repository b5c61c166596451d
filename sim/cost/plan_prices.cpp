#include "sim/cost/plan_prices.hpp"

#include <algorithm>

namespace mfsdp {

static_assert(kSlowdownUnit == kOne, "engine and cost model share one fixed-point unit");

CommunicatorShape shape_of(const Communicator& communicator, const Mesh& mesh) {
  const bool inside =
      std::ranges::find(communicator.axes, Axis::dp_shard) != communicator.axes.end();
  return {.ranks = communicator.size, .spacing = inside ? 1 : mesh.dp_shard};
}

Prices plan_prices(const CostModel& model, const Mesh& mesh) {
  return Prices{.kernel = [&model](const Kernel& kernel) { return model.kernel(kernel); },
                .collective =
                    [&model, mesh](const Collective& collective, const Communicator& communicator) {
                      const CollectiveCost cost = model.collective(
                          collective.kind, full_bytes(collective, communicator.size),
                          shape_of(communicator, mesh));
                      return CollectivePrice{.duration = cost.duration,
                                             .latency = cost.latency,
                                             .slowdown = cost.slowdown,
                                             .link = cost.link == LinkClass::node ? 0 : 1};
                    },
                .copy =
                    [&model](const Copy& copy) {
                      return model.copy(copy.kind, Bytes(copy.output.touched_bytes()));
                    }};
}

}  // namespace mfsdp
