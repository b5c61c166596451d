#include "core/plan/pipeline.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/plan/parallel_checks.hpp"

namespace mfsdp {
namespace {

Result<void> no_pp_with(std::string_view what) { return cannot_combine("--pp", what); }

/// Flags that have no meaning without stages.
Result<void> check_without_stages(const PlanConfig& config) {
  const auto needs_stages = [](const char* flag) {
    return fail(flag, "expected --pp 2 or more beside it");
  };
  if (config.schedule != PipelineSchedule::one_f_one_b) return needs_stages("--schedule");
  if (config.virtual_stages != 0) return needs_stages("--vpp");
  if (config.microbatch_group != 0) return needs_stages("--microbatch-group");
  if (!config.layers_of_stages.empty()) return needs_stages("--layers-of-stages");
  return {};
}

Result<void> check_layers(const PlanConfig& config) {
  const std::int64_t stages = config.mesh.size(Axis::pp);
  const std::int64_t layers = config.model.layers;
  const std::int64_t chunks = checked_mul(stages, chunks_of_stage(config));
  if (!config.layers_of_stages.empty()) return check_given_layers(config);
  if (chunks <= layers + 2) return {};
  return fail(
      "--pp",
      fmt::format("{} stages{} are more than the model's {} blocks with the "
                  "embedding and the head",
                  stages,
                  chunks > stages ? fmt::format(" of {} chunks (--vpp)", chunks / stages) : "",
                  layers));
}

Result<void> check_schedule(const PlanConfig& config) {
  MFSDP_TRY(check(pipeline_shape(config)));
  if (config.schedule != PipelineSchedule::zb_h1) return {};
  for (const Strategy strategy : {config.strategy, config.strategy_of_experts()})
    if (strategy != Strategy::no_shard && strategy != Strategy::optim)
      return fail("--strategy", fmt::format("expected no_shard or optim with --schedule zb_h1, whose "
                                            "weight gradients are complete at the end of a step, "
                                            "got {}",
                                            to_string(strategy)));
  return {};
}

Result<void> check_numbers(const PlanConfig& config) {
  if (config.has_fp8()) return no_pp_with("--fp8");
  if (config.scales_loss()) return no_pp_with("--loss-scale (of fp16, unless it is none)");
  if (config.base_dtype != BaseDType::compute)
    return no_pp_with(fmt::format("--base-dtype {}", to_string(config.base_dtype)));
  if (orthogonalises(config.optimizer))
    return no_pp_with(fmt::format("--optimizer {}", to_string(config.optimizer)));
  if (!config.frozen.empty()) return no_pp_with("--freeze");
  if (config.has_lora()) return no_pp_with("--lora-rank");
  return {};
}

/// Blocks of each chunk. Where not all have as many, the embedding and the head count as a block each,
/// and the first chunks have one more than the others.
std::vector<std::int64_t> equal_counts(std::int64_t layers, std::int64_t chunks) {
  const auto count = static_cast<std::size_t>(chunks);
  if (layers % chunks == 0) return std::vector(count, layers / chunks);
  std::vector<std::int64_t> counts(count, (layers + 2) / chunks);
  std::for_each_n(counts.begin(), (layers + 2) % chunks, [](std::int64_t& of) { ++of; });
  --counts.front();
  --counts.back();
  return counts;
}

}  // namespace

RankClass class_of_stage(const Mesh& mesh, std::int64_t stage) {
  return {.role = fmt::format("stage_{}", stage),
          .ranks = mesh.world_size() / mesh.size(Axis::pp),
          .at = {{.axis = Axis::pp, .index = stage}}};
}

Result<void> check_given_layers(const PlanConfig& config) {
  const std::vector<std::int64_t>& given = config.layers_of_stages;
  const std::int64_t chunks = checked_mul(config.mesh.size(Axis::pp), chunks_of_stage(config));
  const std::int64_t sum = std::accumulate(given.begin(), given.end(), std::int64_t{0});
  if (std::ssize(given) == chunks && sum == config.model.layers) return {};
  return fail("--layers-of-stages",
              fmt::format("expected {} numbers ({}) with the sum {}, the model's blocks; got {} "
                          "with the sum {}",
                          chunks, config.virtual_stages > 1 ? "--pp times --vpp" : "--pp",
                          config.model.layers, given.size(), sum));
}

PipelineShape pipeline_shape(const PlanConfig& config) {
  return {.schedule = config.schedule,
          .stages = config.mesh.size(Axis::pp),
          .chunks = chunks_of_stage(config),
          .microbatches = config.microbatches,
          .group = config.microbatch_group};
}

std::vector<Interval> blocks_of_chunks(const PlanConfig& config) {
  std::vector<std::int64_t> counts = config.layers_of_stages;
  if (counts.empty()) {
    const std::int64_t chunks = config.mesh.size(Axis::pp) * chunks_of_stage(config);
    counts = equal_counts(config.model.layers, chunks);
  }
  std::vector<Interval> blocks;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    blocks.push_back({.begin = begin, .end = begin + count});
    begin += count;
  }
  return blocks;
}

Result<void> check_pipeline(const PlanConfig& config) {
  if (config.mesh.size(Axis::pp) == 1) return check_without_stages(config);
  MFSDP_TRY(check_schedule(config));
  MFSDP_TRY(check_layers(config));
  if (config.model.tied_embeddings) return no_pp_with("tied embeddings");
  if (config.keep_gathered > 0) return no_pp_with("--keep-gathered");
  if (config.placement != CollectivePlacement::earliest)
    return no_pp_with(fmt::format("--placement {}", to_string(config.placement)));
  MFSDP_TRY(check_numbers(config));
  return check_without_windows("--pp", config);
}

}  // namespace mfsdp
