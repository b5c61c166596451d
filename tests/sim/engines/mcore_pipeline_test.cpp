// Pipelines of Megatron-Core. Expected values follow from shapes, or were published.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/plan/instances.hpp"
#include "sim/engines/mcore_stage.hpp"
#include "tests/sim/engines/recorded_llamas.hpp"

namespace mfsdp {
namespace {

constexpr double kGibibyte = 1 << 30;

PlanConfig with_stages(PlanConfig config, std::int64_t stages, std::int64_t chunks = 1) {
  config.mesh.resize(Axis::pp, stages);
  if (chunks > 1) {
    config.schedule = PipelineSchedule::interleaved;
    config.virtual_stages = chunks;
  }
  return config;
}

EnginePlan stage_of(const PlanConfig& config, std::int64_t stage,
                    const EngineOptions& options = {}) {
  const auto own = engine_config(EngineKind::mcore, config, options);
  EXPECT_TRUE(own) << own.error().message();
  return engine_plan_of(EngineKind::mcore, *own, {}, kL2OfH200, options, stage);
}

double allocated_gib(const EnginePlan& plan) {
  return static_cast<double>(engine_memory(plan, {}).counters.peak_allocated) / kGibibyte;
}

// MooreThreads/SimuMax, docs/b200/b200_release_v1.2_summary.json: 8 B200, two stages, DP 4, 4096
// tokens, 8 microbatches, no overlap; peak of allocated memory, first and last stage.
TEST(McorePipeline, MemoryIsThePublishedOne) {
  const EngineOptions options =
      test::engine_options({"overlap_grad_reduce=false", "overlap_param_gather=false"});
  PlanConfig config =
      with_stages(test::config_of(test::llama(8192, 28672, 12, 64, 8, 128256), 4096, 4), 2);
  config.microbatches = 8;
  EXPECT_NEAR(allocated_gib(stage_of(config, 0, options)), 66.55, 0.1);
  EXPECT_NEAR(allocated_gib(stage_of(config, 1, options)), 62.97, 0.1);
  config.model = test::llama(16384, 53248, 4, 128, 16, 128256);
  EXPECT_NEAR(allocated_gib(stage_of(config, 0, options)), 86.61, 0.1);
  EXPECT_NEAR(allocated_gib(stage_of(config, 1, options)), 87.08, 0.1);
}

}  // namespace
}  // namespace mfsdp
