// PyTorch's fused AdamW over the parts of weights that a rank has.
#pragma once

#include <cstdint>
#include <string>

#include "sim/engines/llama_sizes.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// The part of a weight that rank 0's optimizer has.
struct OwnedWeight {
  UnitId unit;
  std::string name;
  std::int64_t elements = 0;  ///< 0: other ranks have it
};

/// Both moments and the number of steps, as AdamW allocates them.
void keep_adamw_state(StepBuilder& step, const OwnedWeight& weight);
/// Clipping, where there is any, and AdamW, over so many elements of so many parameters.
void update_weights(StepBuilder& step, const PlanConfig& config, std::int64_t elements,
                    std::size_t parameters);

}  // namespace mfsdp
