#include "core/memory/assign.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/model/hf_config.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

const std::filesystem::path kModels =
    std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models";

PlanConfig config_of(const std::string& model, Strategy strategy) {
  PlanConfig config;
  config.model = load_model(model, kModels)->shape;
  config.mesh.resize(Axis::dp_shard, 8);
  config.strategy = strategy;
  config.seq_len = std::min<std::int64_t>(8192, config.model.max_seq_len);
  return config;
}

TEST(AssignMemory, BestFitStaysWithinTwoPercentOfEveryLowerBound) {
  const auto models = list_models(kModels);
  ASSERT_TRUE(models.has_value());
  test::Sample sample;
  for (const std::string& model : *models)
    for (int strategy = 0; strategy < 4; ++strategy) {
      if (!sample.takes_next()) continue;
      const auto program = build_program(config_of(model, static_cast<Strategy>(strategy)), {});
      ASSERT_TRUE(program.has_value()) << program.error().message();
      for (const Pool& pool : program->pools)
        EXPECT_LE(pool.height.value * 100, pool.lower_bound.value * 102)
            << model << " zero " << strategy << " pool " << pool.name;
    }
}

TEST(AssignMemory, EveryPolicyHoldsItsPoolsLowerBound) {
  std::int64_t best = 0;
  for (const AllocatorPolicy policy :
       {AllocatorPolicy::best_fit, AllocatorPolicy::temporary, AllocatorPolicy::double_buffer,
        AllocatorPolicy::trace_pool}) {
    PlanConfig config = config_of("llama_tiny", Strategy::optim_grads_params);
    config.allocator = policy;
    const auto program = build_program(config, {});
    ASSERT_TRUE(program.has_value());
    std::int64_t total = 0;
    for (const Pool& pool : program->pools) {
      EXPECT_GE(pool.height, pool.lower_bound) << pool.name;
      total += pool.height.value;
    }
    if (policy == AllocatorPolicy::best_fit) best = total;
    EXPECT_LE(best, total) << to_string(policy);
  }
}

TEST(AssignMemory, PersistentBuffersLieOneAfterTheOther) {
  const auto program = build_program(config_of("llama_nano", Strategy::optim_grads_params), {});
  ASSERT_TRUE(program.has_value());
  for (const Pool& pool : program->pools) {
    std::int64_t end = 0;
    for (const Buffer& buffer : program->buffers) {
      if (buffer.pool != pool.id || !buffer.persistent) continue;
      EXPECT_EQ(buffer.offset.value, end) << buffer.name;
      end = (buffer.offset.value + buffer.size.value + 255) / 256 * 256;
    }
    EXPECT_LE(end, pool.height.value);
  }
}

}  // namespace
}  // namespace mfsdp
