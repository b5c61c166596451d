#include "sim/engines/mcore_stage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "core/plan/pipeline.hpp"
#include "sim/engines/engine.hpp"

namespace mfsdp {
namespace {

/// Layers of each virtual stage; none if they cannot be divided.
std::vector<std::int64_t> layers_of_chunks(EngineKind engine, const PlanConfig& config,
                                           const EngineOptions& options,
                                           const PipelineShape& shape) {
  const std::int64_t virtuals = shape.stages * shape.chunks;
  if (!config.layers_of_stages.empty()) {
    std::vector<std::int64_t> layers;
    for (std::int64_t v = 0; v < virtuals; ++v) {
      const std::int64_t of_stage =
          config.layers_of_stages[static_cast<std::size_t>(v % shape.stages)];
      if (of_stage % shape.chunks != 0) return {};
      layers.push_back(of_stage / shape.chunks);
    }
    return layers;
  }
  const std::int64_t at_begin =
      options.is_on(engine, "account_for_embedding_in_pipeline_split") ? 1 : 0;
  const std::int64_t at_end = options.is_on(engine, "account_for_loss_in_pipeline_split") ? 1 : 0;
  const std::int64_t all = config.model.layers + at_begin + at_end;
  if (all % virtuals != 0) return {};
  std::vector<std::int64_t> layers(static_cast<std::size_t>(virtuals), all / virtuals);
  layers.front() -= at_begin;
  layers.back() -= at_end;
  return layers;
}

}  // namespace

McoreStage mcore_stage(EngineKind engine, const PlanConfig& config, const EngineOptions& options,
                       std::int64_t stage) {
  McoreStage made{.shape = pipeline_shape(config), .stage = stage};
  if (!made.is_pipelined()) {
    made.chunks.push_back({.layers = config.model.layers});
    return made;
  }
  const std::vector<std::int64_t> layers = layers_of_chunks(engine, config, options, made.shape);
  for (std::int64_t c = 0; c < made.shape.chunks; ++c) {
    const std::int64_t number = c * made.shape.stages + stage;
    const auto begin = layers.begin() + number;
    made.chunks.push_back({.first_layer = std::accumulate(layers.begin(), begin, std::int64_t{0}),
                           .layers = *begin,
                           .has_embedding = number == 0,
                           .has_head = number + 1 == std::ssize(layers)});
  }
  return made;
}

void check_mcore_stages(EngineKind engine, const PlanConfig& config, const EngineOptions& options,
                        Reasons& reasons) {
  const PipelineShape shape = pipeline_shape(config);
  if (shape.stages == 1) return;
  if (shape.schedule != PipelineSchedule::one_f_one_b &&
      shape.schedule != PipelineSchedule::interleaved)
    return reasons.add(does_otherwise(engine, "--schedule", "has 1f1b and interleaved"));
  if (const auto checked = check(shape); !checked)
    return reasons.add(tl::unexpected(checked.error()));
  const bool given = !config.layers_of_stages.empty();
  if (given && !reasons.add(check_given_layers(config))) return;
  if (!layers_of_chunks(engine, config, options, shape).empty()) return;
  const std::string chunks =
      shape.chunks > 1 ? fmt::format(" times --vpp {}", shape.chunks) : std::string();
  reasons.add(
      given
          ? fail("--layers-of-stages", fmt::format("expected multiples of --vpp {}", shape.chunks))
          : fail("--pp", fmt::format("expected a number of stages that{} divides {} layers, got "
                                     "{}; or state --layers-of-stages",
                                     chunks, config.model.layers, shape.stages)));
}

}  // namespace mfsdp
