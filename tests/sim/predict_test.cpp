#include "sim/predict/predict.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "core/model/hf_config.hpp"
#include "core/plan/peak_memory.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "reports/record/rates.hpp"
#include "sim/hardware/catalogue.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/shipped_plan.hpp"

namespace mfsdp {
namespace {

using test::kScenarios;

Result<Program> program_of(Strategy strategy, Mesh mesh, std::int64_t microbatches,
                           const std::string& name = "llama_nano", std::int64_t seq_len = 128) {
  MFSDP_LET(model, load_model(name, kScenarios / "models"));
  PlanConfig config;
  config.model = model.shape;
  config.mesh = mesh;
  config.strategy = strategy;
  config.seq_len = seq_len;
  config.microbatches = microbatches;
  MFSDP_TRY(validate(config));
  return build_program(config, {.model_name = name, .tool_version = "", .stored_hash = ""});
}

Result<CostModel> costs_of(std::int64_t gpus) {
  MFSDP_LET(gpu, load_gpu("h200", kScenarios / "gpus"));
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
  const PredictedRun& run = prediction->run;

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

  EXPECT_LE(run.plan.max_live_full_weights, 2);    // prefetch + 1
  EXPECT_LE(run.plan.max_live_full_gradients, 3);  // grad_slots, and the tied unit's
  EXPECT_EQ(run.calibration, "measured");
  EXPECT_EQ(run.plan_hash, plan_hash(*program));
}

std::string shape_name(const testing::TestParamInfo<PredictOf::ParamType>& test) {
  const auto& [strategy, mesh, microbatches] = test.param;
  return fmt::format("{}_{}x{}_{}", to_string(strategy), mesh.size(Axis::dp_outer),
                     mesh.size(Axis::dp_shard), microbatches);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PredictOf,
    testing::Combine(testing::Values(Strategy::no_shard, Strategy::optim, Strategy::optim_grads,
                                     Strategy::optim_grads_params),
                     testing::Values(data_parallel_mesh(1, 1), data_parallel_mesh(1, 7),
                                     data_parallel_mesh(2, 8)),
                     testing::Values(1, 3)),
    shape_name);

TEST(Predict, CommunicatorsLieWhereTheMeshPutsThem) {
  const Mesh mesh = data_parallel_mesh(4, 8);
  const auto shape = [&](std::vector<Axis> axes, std::int64_t size) {
    return shape_of(Communicator{.id = {}, .axes = std::move(axes), .purpose = "", .size = size},
                    mesh);
  };
  EXPECT_EQ(shape({Axis::dp_shard}, 8).spacing, 1);
  EXPECT_EQ(shape({Axis::dp_outer}, 4).spacing, 8);
  EXPECT_EQ(shape({Axis::dp_outer, Axis::dp_shard}, 32).spacing, 1);
  EXPECT_EQ(shape({Axis::dp_outer, Axis::dp_shard}, 32).ranks, 32);
}

Program built_8b(std::vector<std::string> frozen, Recompute recompute = Recompute::selective) {
  PlanConfig config;
  config.model = load_model("llama3_8b", kScenarios / "models")->shape;
  config.frozen = std::move(frozen);
  config.recompute.kind = recompute;
  EXPECT_TRUE(validate(config));
  return build_program(config, {}).value();
}

double flops_of(const Program& program) { return model_flops(*program.find_plan(PlanRole::train)); }

/// Per block: matrices (6144 + 4096 + 28672 + 14336) * 4096 = 218,103,808; attention, causal, a
/// forward: 2 * 32 heads * 128 * 8192 = 67,108,864 a token. Head: 128256 * 4096 = 525,336,576.
constexpr double kTokens = 8192;
constexpr double kBlock = 218'103'808;
constexpr double kAttention = 67'108'864;
constexpr double kHead = 525'336'576;

TEST(ModelFlops, SixForEveryTrainedParameterWhateverIsRecomputed) {
  const double all = kTokens * (6 * (32 * kBlock + kHead) + 3 * 32 * kAttention);
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    EXPECT_EQ(flops_of(built_8b({}, recompute)), all);
}

TEST(ModelFlops, FourForFrozenOnesThatAGradientPassesThrough) {
  // Norms and the embedding stay trainable: the gradient goes all the way down.
  const Program program = built_8b({"proj", "lm_head"});
  EXPECT_EQ(flops_of(program), kTokens * (4 * (32 * kBlock + kHead) + 3 * 32 * kAttention));
}

TEST(ModelFlops, TwoForFrozenOnesWithNothingTrainedBeforeThem) {
  // The head alone is trained: blocks run forward only.
  const Program head = built_8b({"model."});
  EXPECT_EQ(flops_of(head), kTokens * (32 * (2 * kBlock + kAttention) + 6 * kHead));
  // Block 31 alone: the gradient passes through the head, which is frozen.
  std::vector<std::string> others{"embed_tokens", "lm_head", "model.norm"};
  for (int layer = 0; layer < 31; ++layer) others.push_back(fmt::format("layers.{}.", layer));
  EXPECT_EQ(flops_of(built_8b(others)),
            kTokens * (31 * (2 * kBlock + kAttention) + 6 * kBlock + 3 * kAttention + 4 * kHead));
}

TEST(Predict, FrozenParametersRaiseNoMfuAboveThePeak) {
  const auto costs = costs_of(1);
  ASSERT_TRUE(costs);
  const auto all = predict(built_8b({}), *costs);
  const auto head = predict(built_8b({"model."}), *costs);
  ASSERT_TRUE(all && head);
  EXPECT_GT(head->run.time.mfu, 0.4);
  EXPECT_LT(head->run.time.mfu, 0.85);  // it was 1.4 when every parameter counted six
  EXPECT_EQ(head->run.time.tflops_per_gpu, rates_of(head->run, head->run.time.step).tflops);
}

TEST(Predict, PricesAboveTheGpusPeakAreAnError) {
  const auto costs = costs_of(1);
  ASSERT_TRUE(costs);
  const auto wrong = predict(built_8b({}), costs->scaled(0.3, 1));
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message(),
              testing::MatchesRegex("h200: gemm of m .* would run at [0-9]+ TFLOP/s, above the "
                                    "GPU's peak of 989 .compute.bf16_tflops.: .*"));
}

TEST(Predict, NoGpuOfTheCatalogueIsAboveItsPeak) {
  const Catalogue catalogue{kScenarios / "gpus", "GPU", "--gpu", "--list-gpus"};
  const Program program = built_8b({});
  const auto names = list_catalogue(catalogue);
  ASSERT_TRUE(names);
  for (const std::string& name : *names) {
    const auto gpu = load_gpu(name, kScenarios / "gpus");
    ASSERT_TRUE(gpu) << name;
    const auto costs =
        make_cost_model(make_cluster(*gpu, 1, std::min<std::int64_t>(8, gpu->domain)).value());
    const auto prediction = predict(program, costs.value());
    EXPECT_TRUE(prediction) << prediction.error().message();
  }
}

TEST(Predict, ThePeaksOpIsWhereTheTimelineIsHighest) {
  for (const Strategy strategy : {Strategy::no_shard, Strategy::optim_grads_params}) {
    const Mesh mesh = data_parallel_mesh(1, 8);
    const auto program = program_of(strategy, mesh, 2);
    ASSERT_TRUE(program);
    const auto prediction = predict(*program, costs_of(8).value());
    ASSERT_TRUE(prediction);
    const PredictedRun& run = prediction->run;
    Bytes most;
    Nanos when;
    for (const MemoryPoint& point : run.memory_timeline)
      if (sum_of(point.categories) > most) {
        most = sum_of(point.categories);
        when = point.at;
      }
    EXPECT_EQ(run.live_peak, most);
    EXPECT_LE(most, run.memory.peak);
    const auto op = std::ranges::find(run.timeline, run.peak_op, &OpTime::name);
    ASSERT_NE(op, run.timeline.end());
    EXPECT_EQ(op->stream, "compute");
    const bool running = std::ranges::any_of(run.timeline, [&](const OpTime& other) {
      return other.name == run.peak_op && other.end > when;
    });
    EXPECT_TRUE(running);
  }
}

TEST(Predict, AStepThatWaitsForTheHostComputesAtAHigherClock) {
  const Program program =
      program_of(Strategy::optim_grads_params, data_parallel_mesh(1, 2), 1, "llama3_1b", 2048)
          .value();
  const CostModel costs = costs_of(2).value();
  const auto compute = [&](std::int64_t host_ns, const RankVariation& variation = {}) {
    const auto host = [&](const Op& op) {
      return op.kind() == OpKind::kernel ? Nanos(host_ns) : Nanos(0);
    };
    return predict(program, costs, variation, {{.time = host}})->run.time;
  };
  const TimeSummary fast = compute(0);
  const TimeSummary slow = compute(200'000);
  EXPECT_GT(slow.step, fast.step);
  // GEMMs and attention are most of compute; they are at most 1.15 times as fast.
  const auto alone = [](const TimeSummary& time) {
    return static_cast<double>((time.compute - time.contention).value);
  };
  EXPECT_GT(alone(fast) / alone(slow), 1.1);
  EXPECT_LT(alone(fast) / alone(slow), 1.15);

  // A slow rank has the clock that it has where all are alike, also where nothing waits then.
  const RankVariation half{.slow = {{.rank = 0, .factor = {2, 1}}, {.rank = 1, .factor = {2, 1}}}};
  EXPECT_NEAR(alone(compute(200'000, half)) / alone(slow), 2, 1e-3);
}

TEST(Predict, AVariationOutOfRangeIsAnError) {
  const auto program = program_of(Strategy::optim_grads_params, data_parallel_mesh(1, 8), 1);
  ASSERT_TRUE(program) << program.error().message();
  const auto prediction = predict(*program, costs_of(8).value(), {.jitter = {-1, 10}});
  ASSERT_FALSE(prediction);
  EXPECT_EQ(prediction.error().message(), "--jitter: expected a share from 0 to 1, got -1/10");
}

TEST(Predict, APlanWithoutTrainIsAnError) {
  auto program = program_of(Strategy::optim_grads_params, data_parallel_mesh(1, 8), 1);
  ASSERT_TRUE(program) << program.error().message();
  std::erase_if(program->plans, [](const Plan& plan) { return plan.role() == PlanRole::train; });
  const auto costs = costs_of(8);
  ASSERT_TRUE(costs) << costs.error().message();
  const auto prediction = predict(*program, *costs);
  ASSERT_FALSE(prediction);
  EXPECT_EQ(prediction.error().message(), "plans: there is no plan of role train");
}

/// Forward alone, of one microbatch: the other plans' kernels of a model, and one copy more.
TEST(Predict, PlansOfEachRoleHaveTimesOfTheirOwn) {
  const Program program = test::shipped_plan("logprob/llama_nano.json");
  const CostModel costs = costs_of(1).value();
  const auto predicted = [&](PlanRole role) {
    return predict(program, costs, {}, {}, {}, role).value().run;
  };
  const PredictedRun train = predicted(PlanRole::train);
  const PredictedRun eval = predicted(PlanRole::eval);
  const PredictedRun logprob = predicted(PlanRole::logprob);
  EXPECT_EQ(train.time.step, predict(program, costs).value().run.time.step);
  EXPECT_GT(eval.time.step, Nanos(0));
  EXPECT_GE(logprob.time.step, eval.time.step);
  EXPECT_LT(logprob.time.step, train.time.step);
  EXPECT_EQ(logprob.plan.model_flops, eval.plan.model_flops);
  // Two microbatches, each with a forward and a backward of two forwards.
  EXPECT_EQ(train.plan.model_flops, 6 * eval.plan.model_flops);
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
