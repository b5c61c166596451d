// The parameters of a block in the code of transformers and of torchtitan.
#pragma once

#include <vector>

#include "core/plan/config.hpp"
#include "core/plan/engine_options.hpp"
#include "sim/engines/llama_weights.hpp"

namespace mfsdp {

/// In the order of the class's modules, of one layer. `modules` is not fused.
[[nodiscard]] std::vector<Weight> module_weights(const PlanConfig& config, Modules modules,
                                                 std::int64_t layer = 0);

/// The position of a weight of that name.
[[nodiscard]] std::size_t position_of(const std::vector<Weight>& weights, std::string_view name);

}  // namespace mfsdp
