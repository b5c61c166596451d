// Stages of a pipeline: which blocks ranks of pp have, and the rules of --pp.
//
//   --pp 2, one chunk each      blocks 0 .. 3 | 4 .. 7
//   --pp 2 --vpp 2              chunk 0: 0 1 | 2 3    chunk 1: 4 5 | 6 7
//
// The embedding is with the first blocks, the final norm, the head and the loss with the last ones. A
// chunk at an end of the model may have no other part.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"
#include "core/plan/pipeline_order.hpp"
#include "core/plan/placement.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Chunks of blocks that each stage has.
[[nodiscard]] inline std::int64_t chunks_of_stage(const PlanConfig& config) {
  return config.virtual_stages > 1 ? config.virtual_stages : 1;
}

[[nodiscard]] PipelineShape pipeline_shape(const PlanConfig& config);

/// Blocks of each chunk, in the order of the model: chunk c of stage s is number c * stages + s.
/// Requires a valid configuration.
[[nodiscard]] std::vector<Interval> blocks_of_chunks(const PlanConfig& config);

/// The ranks of a stage, which run a program of their own: "stage_0".
[[nodiscard]] RankClass class_of_stage(const Mesh& mesh, std::int64_t stage);

/// Refuses given blocks that are not one number for each chunk of a stage, or not all blocks.
[[nodiscard]] Result<void> check_given_layers(const PlanConfig& config);

/// Refuses numbers of stages that do not fit the model or the batch, and what the planner does not
/// support beside them. Plans by hand may divide a model otherwise.
[[nodiscard]] Result<void> check_pipeline(const PlanConfig& config);

}  // namespace mfsdp
