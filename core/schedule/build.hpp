// The entry of the planner: from a configuration to a complete program, or one for each stage.
#pragma once

#include "core/base/error.hpp"
#include "core/memory/allocation_cache.hpp"
#include "core/plan/job.hpp"
#include "core/plan/plan.hpp"
#include "core/recipe/recipe.hpp"

namespace mfsdp {

/// The programs of all classes of ranks, one for each stage of a pipeline: as build_program() builds
/// them, but stages have a plan `train` alone so far.
[[nodiscard]] Result<Job> build_job(const PlanConfig& config, const Meta& meta,
                                    AllocationCache* cache = nullptr,
                                    const FamilyRecipe* recipe = nullptr);

/// Builds the train and eval plans with buffers placed in pools. Errors name the flag at fault, or
/// the size that exceeds 63 bits. `cache` may be null; programs that share one are built faster,
/// with equal results. `recipe`: the model's recipes; null for those of our own engine. Configurations
/// of several stages are refused.
[[nodiscard]] Result<Program> build_program(const PlanConfig& config, const Meta& meta,
                                            AllocationCache* cache = nullptr,
                                            const FamilyRecipe* recipe = nullptr);

}  // namespace mfsdp
