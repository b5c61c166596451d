// From a configuration to a complete program: the one entry of the planner.
#pragma once

#include "core/base/error.hpp"
#include "core/memory/allocation_cache.hpp"
#include "core/plan/plan.hpp"
#include "core/recipe/recipe.hpp"

namespace mfsdp {

/// Builds the train and eval plans with buffers placed in pools. Errors name the flag at fault or
/// say which size left 63 bits. `cache` may be null; many programs that share one are built faster,
/// and are the same. `recipe`: how the model is computed; null for our own engine's way.
[[nodiscard]] Result<Program> build_program(const PlanConfig& config, const Meta& meta,
                                            AllocationCache* cache = nullptr,
                                            const FamilyRecipe* recipe = nullptr);

}  // namespace mfsdp
