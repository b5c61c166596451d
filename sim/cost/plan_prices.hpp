// The cost model as the engine asks for it.
#pragma once

#include "core/plan/config.hpp"
#include "sim/cost/cost_model.hpp"
#include "sim/engine/prices.hpp"

namespace mfsdp {

/// How a plan's communicator lies in the world: over dp_outer alone its ranks are dp_shard apart,
/// otherwise they are neighbours.
[[nodiscard]] CommunicatorShape shape_of(const Communicator& communicator, const Mesh& mesh);

/// Prices of a plan's ops on that mesh. The functions refer to `model`, which must outlive them.
[[nodiscard]] Prices plan_prices(const CostModel& model, const Mesh& mesh);

}  // namespace mfsdp
