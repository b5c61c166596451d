#include "sim/predict/predict.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <numeric>

#include "core/model/hf_config.hpp"
#include "core/plan/peak_memory.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/random_configurations.hpp"

namespace mfsdp {
namespace {

const std::filesystem::path scenarios = std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios";

Result<Program> program_of(Strategy strategy, Mesh mesh, std::int64_t microbatches) {
  MFSDP_LET(model, load_model("llama_nano", scenarios / "models"));
  PlanConfig config;
  config.model = model.shape;
  config.mesh = mesh;
  config.strategy = strategy;
  config.seq_len = 128;
  config.microbatches = microbatches;
  MFSDP_TRY(validate(config));
  return build_program(config, {.model_name = "llama_nano", .tool_version = "", .stored_hash = ""});
}

Result<CostModel> costs_of(std::int64_t gpus) {
  MFSDP_LET(gpu, load_gpu("h200", scenarios / "gpus"));
  MFSDP_LET(cluster, make_cluster(gpu, gpus, 8));
  return make_cost_model(cluster);
}

class PredictOf : public testing::TestWithParam<std::tuple<Strategy, Mesh, std::int64_t>> {};

TEST_P(PredictOf, EverySumHolds) {
  const auto& [strategy, mesh, microbatches] = GetParam();
  const auto program = program_of(strategy, mesh, microbatches);
  ASSERT_TRUE(program) << program.error().message();
  const auto costs = costs_of(mesh.world_size());
  ASSERT_TRUE(costs) << costs.error().message();
  const auto prediction = predict(*program, *costs);
  ASSERT_TRUE(prediction) << prediction.error().message();
  const RunResult& run = prediction->run;

  const MemorySummary& memory = run.memory;
  EXPECT_EQ(std::accumulate(memory.categories.begin(), memory.categories.end(), Bytes(0)),
            memory.peak);
  Bytes pools;
  for (const PoolSummary& pool : run.plan.pools) pools += pool.height;
  EXPECT_EQ(memory.allocated,
            pools + runtime_bytes(costs->cluster().gpu, std::ssize(program->communicators)));
  EXPECT_LE(memory.peak, memory.allocated);
  EXPECT_EQ(memory.headroom, memory.capacity - memory.allocated);

  const TimeSummary& time = run.time;
  EXPECT_EQ(time.step, time.compute + time.exposed_communication + time.idle);
  EXPECT_GT(time.step.value, 0);
  const double seconds = static_cast<double>(time.step.value) / 1e9;
  EXPECT_DOUBLE_EQ(time.tokens_per_second_per_gpu * seconds,
                   static_cast<double>(128 * microbatches));
  EXPECT_DOUBLE_EQ(time.mfu * costs->cluster().gpu.bf16, time.tflops_per_gpu);

  EXPECT_LE(run.plan.max_live_full_weights, 2);  // prefetch + 1
  EXPECT_LE(run.plan.max_live_full_gradients, 2);
  EXPECT_EQ(run.calibration, "measured");
  EXPECT_EQ(run.plan_hash, plan_hash(*program));
}

std::string shape_name(const testing::TestParamInfo<PredictOf::ParamType>& test) {
  const auto& [strategy, mesh, microbatches] = test.param;
  return fmt::format("{}_{}x{}_{}", to_string(strategy), mesh.dp_outer, mesh.dp_shard,
                     microbatches);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PredictOf,
                         testing::Combine(testing::Values(Strategy::no_shard, Strategy::optim,
                                                          Strategy::optim_grads,
                                                          Strategy::optim_grads_params),
                                          testing::Values(Mesh{.dp_outer = 1, .dp_shard = 1},
                                                          Mesh{.dp_outer = 1, .dp_shard = 7},
                                                          Mesh{.dp_outer = 2, .dp_shard = 8}),
                                          testing::Values(1, 3)),
                         shape_name);

TEST(Predict, CommunicatorsLieWhereTheMeshPutsThem) {
  const Mesh mesh{.dp_outer = 4, .dp_shard = 8};
  const auto shape = [&](std::vector<Axis> axes, std::int64_t size) {
    return shape_of(Communicator{.id = {}, .axes = std::move(axes), .purpose = "", .size = size},
                    mesh);
  };
  EXPECT_EQ(shape({Axis::dp_shard}, 8).spacing, 1);
  EXPECT_EQ(shape({Axis::dp_outer}, 4).spacing, 8);
  EXPECT_EQ(shape({Axis::dp_outer, Axis::dp_shard}, 32).spacing, 1);
  EXPECT_EQ(shape({Axis::dp_outer, Axis::dp_shard}, 32).ranks, 32);
}

TEST(Predict, APlanWithoutTrainIsAnError) {
  auto program = program_of(Strategy::optim_grads_params, {.dp_outer = 1, .dp_shard = 8}, 1);
  ASSERT_TRUE(program) << program.error().message();
  std::erase_if(program->plans, [](const Plan& plan) { return plan.name == "train"; });
  const auto costs = costs_of(8);
  ASSERT_TRUE(costs) << costs.error().message();
  const auto prediction = predict(*program, *costs);
  ASSERT_FALSE(prediction);
  EXPECT_EQ(prediction.error().message(), "plans: there is no plan named 'train'");
}

RC_GTEST_PROP(Predict, SumsHoldForEveryConfiguration, ()) {
  const PlanConfig config = *test::any_config();
  RC_PRE(validate(config).has_value() && config.mesh.world_size() <= 8);
  const auto program = build_program(config, {});
  RC_ASSERT(program.has_value());
  const auto costs = costs_of(config.mesh.world_size());
  RC_ASSERT(costs.has_value());
  const auto prediction = predict(*program, *costs);
  if (!prediction) RC_FAIL(prediction.error().message());
  const TimeSummary& time = prediction->run.time;
  RC_ASSERT(time.step == time.compute + time.exposed_communication + time.idle);
  RC_ASSERT(time.idle >= Nanos(0));
  RC_ASSERT(time.exposed_communication <= time.communication);
  const MemorySummary& memory = prediction->run.memory;
  RC_ASSERT(std::accumulate(memory.categories.begin(), memory.categories.end(), Bytes(0)) ==
            memory.peak);
  RC_ASSERT(memory.peak <= memory.allocated);
  // However fast ops are, no moment needs more than the peak in any category.
  for (const MemoryPoint& point : prediction->run.memory_timeline)
    RC_ASSERT(sum_of(point.categories) <= memory.peak);
}

}  // namespace
}  // namespace mfsdp
