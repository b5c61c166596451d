// The layers of a pipeline's stage in Megatron-Core.
//
//   chunks     virtual stages: chunk c of stage s of p is number c p + s, and has the layers after
//              those of the number before. The first one has the embedding, the last one the head
//   layers     equal numbers. With account_for_embedding_in_pipeline_split and
//              account_for_loss_in_pipeline_split the embedding and the head count as a layer
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"
#include "core/plan/engine_options.hpp"
#include "core/plan/pipeline_order.hpp"

namespace mfsdp {

struct McoreChunk {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool has_embedding = true;
  bool has_head = true;
};

struct McoreStage {
  PipelineShape shape{};
  std::int64_t stage = 0;
  std::vector<McoreChunk> chunks{};

  [[nodiscard]] bool is_pipelined() const { return shape.stages > 1; }
  /// Whether a chunk gets activations from another stage, and sends them to one.
  [[nodiscard]] bool has_before(std::int64_t chunk) const { return stage > 0 || chunk > 0; }
  [[nodiscard]] bool has_after(std::int64_t chunk) const {
    return stage < shape.stages - 1 || chunk < shape.chunks - 1;
  }
};

[[nodiscard]] McoreStage mcore_stage(EngineKind engine, const PlanConfig& config,
                                     const EngineOptions& options, std::int64_t stage);

/// Refuses, with the flag, pipelines that have no order, and layers that stages cannot divide. Adds
/// to `reasons`.
void check_mcore_stages(EngineKind engine, const PlanConfig& config, const EngineOptions& options,
                        Reasons& reasons);

}  // namespace mfsdp
