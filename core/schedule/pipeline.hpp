// Plans of pipelines: a program for each stage.
#pragma once

#include "core/plan/job.hpp"
#include "core/recipe/recipe.hpp"

namespace mfsdp::schedule {

/// The programs of all stages, in order, without bindings of waits and places of buffers. The plan
/// of a stage has a pass `forward`, and `backward` for the first, the middle and the last microbatch;
/// segments call them in the order of the schedule. Requires a valid configuration with ranks of pp.
[[nodiscard]] Job make_stages(const PlanConfig& config, const Meta& meta,
                              const FamilyRecipe& family);

}  // namespace mfsdp::schedule
