// PyTorch's fused AdamW over a rank's shards of the weights.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// The shard of a weight that rank 0's optimizer updates.
struct OwnedWeight {
  UnitId unit;
  std::string name;
  std::int64_t elements = 0;  ///< 0: other ranks have it
};

/// Both moments and the step count, as AdamW allocates them. `main`: bytes of an element of the
/// weight and of its moments between steps.
void keep_adamw_state(StepBuilder& step, const OwnedWeight& weight, std::int64_t main = kFull);
/// Optional clipping, then AdamW, over `elements` elements of `parameters` parameters. `sum_norm`
/// sums the norm over other ranks.
void update_weights(StepBuilder& step, const PlanConfig& config, std::int64_t elements,
                    std::size_t parameters, std::int64_t main = kFull,
                    const std::function<void()>& sum_norm = {});

}  // namespace mfsdp
