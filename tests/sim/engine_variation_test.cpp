// Steps of ranks that differ: which ranks wait for others, and which have to be simulated.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/model/hf_config.hpp"
#include "core/schedule/build.hpp"
#include "sim/predict/predict.hpp"
#include "tests/sim/timed_plan.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp {
namespace {

using namespace test;

RankVariation one_slow(std::int64_t rank, Rational factor, bool by_rank = false) {
  return {.slow = {{.rank = rank, .factor = factor}}, .by_rank = by_rank};
}

/// Everything of a simulation except the number of simulated ranks, as text.
std::string describe(const Simulation& simulation) {
  const auto bytes = [](const auto& categories) {
    std::vector<std::int64_t> values;
    for (const Bytes size : categories) values.push_back(size.value);
    return fmt::format("{}", values);
  };
  const TimeSummary& time = simulation.time;
  const RankSummary& ranks = simulation.ranks;
  std::string text =
      fmt::format("step {} compute {} communication {} exposed {} idle {} contention {}\n",
                  time.step.value, time.compute.value, time.communication.value,
                  time.exposed_communication.value, time.idle.value, time.contention.value);
  text += fmt::format("{} ranks, reported {}, waited for {}, compute {} {} {}, slowest {}, {} {}\n",
                      ranks.ranks, ranks.reported, ranks.waited_for.value,
                      ranks.compute_least.value, ranks.compute_mean.value, ranks.compute_most.value,
                      ranks.slowest, ranks.waiting_mean.value, ranks.waiting_most.value);
  for (const OpSpan& span : simulation.spans)
    text += fmt::format("span {} {} {} {} {}\n", span.segment, span.op, span.instance,
                        span.start.value, span.end.value);
  for (const OpTime& op : simulation.timeline)
    text += fmt::format("op {} {} {} {}\n", op.name, op.instance, op.start.value, op.end.value);
  for (const MemoryPoint& point : simulation.memory_timeline)
    text += fmt::format("memory {} {}\n", point.at.value, bytes(point.categories));
  for (const ExposedUnit& unit : simulation.exposed_units)
    text += fmt::format("exposed {} {}\n", unit.unit, unit.exposed.value);
  return text;
}

TEST(Variation, TheEarlyRankWaitsInItsLaunch) {
  // Two ranks, the second of half speed. Each step: a kernel of 100, a collective of 30 after it, a
  // kernel of 50 after that. Rank 0: [0, 100), waits until 200, collective to 230, kernel to 280;
  // rank 1: [0, 200), collective to 230, kernel to 330. The next step begins without a barrier:
  // rank 0 from 280 to 380, rank 1 from 330 to 530; collective [530, 560); ends 610 and 660.
  Tiny tiny;
  tiny.mesh(1, 2).segment("only").kernel(100).record(kCompute, 0).wait(kGather, 0);
  tiny.collective(kGather, 0, {.duration = 30}).record(kGather, 1).wait(kCompute, 1).kernel(50);
  const auto result = simulate(tiny, one_slow(1, {2, 1}));
  ASSERT_TRUE(result.has_value()) << result.error().message();
  const RankSummary& ranks = result->ranks;
  EXPECT_EQ(ranks.ranks, 2);
  EXPECT_EQ(ranks.simulated, 2);
  EXPECT_EQ(ranks.reported, 1);
  EXPECT_EQ(ranks.waited_for, Nanos(530 - 380));
  EXPECT_EQ(ranks.compute_least, Nanos(150));
  EXPECT_EQ(ranks.compute_mean, Nanos(225));
  EXPECT_EQ(ranks.compute_most, Nanos(300));
  EXPECT_EQ(ranks.slowest, 1);
  EXPECT_EQ(ranks.waiting_most, Nanos(150));
  EXPECT_EQ(ranks.waiting_mean, Nanos(75));
  EXPECT_EQ(result->time.step, Nanos(660 - 330));
  EXPECT_EQ(result->time.communication, Nanos(30));
}

TEST(Variation, WaitingSlowsTheKernelsBesideIt) {
  // Each rank: a kernel of 100, then a collective of 40 and a kernel of 100 beside each other; on
  // rank 1 kernels take 300. Rank 0's launch comes up at 100 and waits until 300; its SMs leave the
  // kernel beside it 3/4 of its speed, so that takes 133.3. The collective ends at 340 on both;
  // rank 1's kernel lost 40 / 4 to it and ends at 610. The second step: rank 0 waits from 440 until
  // rank 1 comes at 910.
  Tiny tiny;
  tiny.mesh(1, 2).segment("only").kernel(100, "first", kScatter).record(kScatter, 0);
  tiny.wait(kGather, 0).collective(kGather, 0, {.duration = 40, .sms = 1}).record(kGather, 1);
  tiny.wait(kCompute, 0).kernel(100, "beside").wait(kCompute, 1).record(kCompute, 2);
  tiny.wait(kScatter, 2);
  const auto result = simulate(tiny, one_slow(1, {3, 1}));
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->ranks.reported, 1);
  EXPECT_EQ(result->ranks.compute_least, Nanos(134 - 33));  // contention is rounded down
  EXPECT_EQ(result->ranks.compute_most, Nanos(310 - 10));
  EXPECT_EQ(result->ranks.waiting_most, Nanos(910 - 440 - 134));
}

TEST(Variation, WaitingMovesNoBytes) {
  // As above, but the collective takes memory traffic instead of SMs: rank 0's kernel runs at full
  // speed beside the launch that waits, from 100 to 200 and, in the second step, from 440 to 540.
  Tiny tiny;
  tiny.mesh(1, 2).segment("only").kernel(100, "first", kScatter).record(kScatter, 0);
  tiny.wait(kGather, 0).collective(kGather, 0, {.duration = 40, .memory = 1}).record(kGather, 1);
  tiny.wait(kCompute, 0).kernel(100, "beside").wait(kCompute, 1).record(kCompute, 2);
  tiny.wait(kScatter, 2);
  const auto result = simulate(tiny, one_slow(1, {3, 1}));
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->ranks.compute_least, Nanos(100));
  EXPECT_EQ(result->ranks.compute_most, Nanos(310 - 10));
  EXPECT_EQ(result->ranks.waiting_most, Nanos(910 - 540));
}

TEST(Variation, ASlowRankIsPaidOnceAStep) {
  // 64 ranks; eight layers, each a collective of 100 and a kernel of 1000 that waits for it, all in
  // one chain: 8 * 1100. With one rank 10 % slower the others wait 100 in each collective, and the
  // step grows by its 8 * 100 of extra compute: not by that for each collective.
  Tiny tiny;
  tiny.mesh(1, 64).segment("only");
  for (int layer = 0; layer < 8; ++layer)
    tiny.wait(kGather, 0, 1)
        .collective(kGather, 0, {.duration = 100})
        .record(kGather, 1)
        .wait(kCompute, 1)
        .kernel(1000)
        .record(kCompute, 0);
  EXPECT_EQ(simulate(tiny)->time.step, Nanos(8800));
  for (const bool by_rank : {false, true}) {
    const auto slow = simulate(tiny, one_slow(17, {11, 10}, by_rank));
    ASSERT_TRUE(slow.has_value()) << slow.error().message();
    // 1.1 of 1000 is 1,099.99962 or 1,100.0004 in parts of 2^20: each kernel rounds up to 1 ns.
    EXPECT_NEAR(static_cast<double>(slow->time.step.value), 8800 + 800, 8);
    EXPECT_NEAR(static_cast<double>(slow->ranks.waited_for.value), 8 * 100, 8);
    EXPECT_EQ(slow->ranks.reported, 17);
    EXPECT_EQ(slow->ranks.simulated, by_rank ? 64 : 2);
  }
}

TEST(Variation, OfRanksThatNobodyWaitsForTheSlowestIsReported) {
  Tiny tiny;
  tiny.mesh(1, 4).segment("only").kernel(100);
  EXPECT_EQ(simulate(tiny, {.by_rank = true})->ranks.reported, 0);
  const auto slow = simulate(tiny, one_slow(2, {3, 2}));
  EXPECT_EQ(slow->ranks.reported, 2);
  EXPECT_EQ(slow->ranks.waited_for, Nanos(0));
  EXPECT_EQ(slow->time.step, Nanos(150));
}

TEST(Variation, WrongFieldsAreErrors) {
  Tiny tiny;
  tiny.segment("only").kernel(5);
  EXPECT_EQ(simulate(tiny, one_slow(1, {2, 1})).error().message(),
            "--slow-rank: expected a rank from 0 to 0, got 1");
}

struct Case {
  Program program;
  CostModel costs;

  [[nodiscard]] Simulation simulate(const RankVariation& variation = {}) const {
    auto prediction = predict(program, costs, variation);
    EXPECT_TRUE(prediction.has_value()) << prediction.error().message();
    return std::move(prediction->simulation);
  }
};

Case case_of(const std::string& model, Mesh mesh, Strategy outer = Strategy::no_shard) {
  PlanConfig config;
  config.model = load_model(model, kScenarios / "models")->shape;
  config.mesh = mesh;
  config.outer_strategy = outer;
  config.seq_len = std::min<std::int64_t>(config.model.max_seq_len, 8192);
  config.microbatches = 3;
  EXPECT_TRUE(validate(config).has_value());
  const auto gpu = load_gpu("h200", kScenarios / "gpus");
  return {*build_program(config, {}), *make_cost_model(*make_cluster(*gpu, mesh.world_size(), 8))};
}

class SixtyFourRanks : public testing::TestWithParam<std::pair<Mesh, Strategy>> {};

TEST_P(SixtyFourRanks, AreTheSameByRankAndByClass) {
  const Case example = case_of("llama_nano", GetParam().first, GetParam().second);
  const auto compare = [&](RankVariation variation, std::int64_t most_classes) {
    const Simulation by_class = example.simulate(variation);
    variation.by_rank = true;
    const Simulation by_rank = example.simulate(variation);
    EXPECT_LE(by_class.ranks.simulated, most_classes);
    EXPECT_EQ(by_rank.ranks.simulated, 64);
    EXPECT_EQ(describe(by_class), describe(by_rank));
  };
  compare({}, 1);
  compare(one_slow(0, {11, 10}), 4);
  compare(one_slow(29, {3, 1}), 4);
  compare({.slow = {{.rank = 3, .factor = {5, 4}}, {.rank = 40, .factor = {1, 2}}}}, 16);
}

std::string mesh_name(const testing::TestParamInfo<SixtyFourRanks::ParamType>& info) {
  return fmt::format("{}x{}_{}", info.param.first.size(Axis::dp_outer),
                     info.param.first.size(Axis::dp_shard), to_string(info.param.second));
}

INSTANTIATE_TEST_SUITE_P(Meshes, SixtyFourRanks,
                         testing::Values(std::pair(data_parallel_mesh(1, 64), Strategy::no_shard),
                                         std::pair(data_parallel_mesh(8, 8), Strategy::no_shard),
                                         std::pair(data_parallel_mesh(16, 4), Strategy::no_shard),
                                         std::pair(data_parallel_mesh(8, 8), Strategy::optim)),
                         mesh_name);

RC_GTEST_PROP(Variation, ByRankAndByClassAgree, ()) {
  PlanConfig config = *test::any_config();
  config.mesh.resize(Axis::dp_shard, *rc::gen::element<std::int64_t>(1, 2, 4, 6));
  RC_PRE(validate(config).has_value());
  const std::int64_t ranks = config.mesh.world_size();
  const auto gpu = load_gpu("h200", kScenarios / "gpus");
  const Case example{
      *build_program(config, {}),
      *make_cost_model(*make_cluster(*gpu, ranks, config.mesh.size(Axis::dp_shard)))};
  RankVariation variation;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    if (*rc::gen::inRange(0, 4) == 0)
      variation.slow.push_back({.rank = rank, .factor = {*rc::gen::inRange(2, 6), 4}});
  const Simulation by_class = example.simulate(variation);
  variation.by_rank = true;
  const Simulation by_rank = example.simulate(variation);
  RC_ASSERT(by_class.ranks.simulated <= by_rank.ranks.simulated);
  RC_ASSERT(describe(by_class) == describe(by_rank));
}

TEST(Variation, JitterDependsOnItsSeedAlone) {
  const Case example = case_of("llama_nano", data_parallel_mesh(4, 4));
  const Simulation once = example.simulate({.jitter = {5, 100}, .seed = 7});
  EXPECT_EQ(describe(once), describe(example.simulate({.jitter = {5, 100}, .seed = 7})));
  EXPECT_NE(describe(once), describe(example.simulate({.jitter = {5, 100}, .seed = 8})));
  EXPECT_EQ(once.ranks.simulated, 16);
  EXPECT_LT(once.ranks.compute_least, once.ranks.compute_mean);
  EXPECT_LT(once.ranks.compute_mean, once.ranks.compute_most);
  // Waiting only adds: with ranks that meet, the latest of 16 counts each time.
  EXPECT_GT(once.time.step, example.simulate().time.step);
}

TEST(Variation, ASlowRankOfLlamaIsPaidOnceAStep) {
  // Llama-3-8B, 64 ranks, one 10 % slower. Its kernels alone take compute - contention; the step
  // must grow by a tenth of that. Only communication may differ: the slow rank's longer kernels
  // hide the exposed part of other ranks, and may be slowed down by more of it.
  const Case example = case_of("llama3_8b", data_parallel_mesh(1, 64));
  const Simulation alike = example.simulate();
  const Simulation slow = example.simulate(one_slow(9, {11, 10}));
  const Nanos alone = alike.time.compute - alike.time.contention;
  const Nanos growth = slow.time.step - alike.time.step;
  EXPECT_NEAR(static_cast<double>(growth.value), static_cast<double>(alone.value) / 10,
              static_cast<double>(alike.time.exposed_communication.value));
  EXPECT_LT(alike.time.exposed_communication.value * 10,
            growth.value);  // so that the test is meaningful
  EXPECT_EQ(slow.ranks.reported, 9);
  EXPECT_EQ(slow.ranks.slowest, 9);
  // A kernel whose speed changes ends within 1 ns of its work: some thousand of them in a step.
  const auto alone_ns = static_cast<double>(alone.value);
  EXPECT_NEAR(static_cast<double>(slow.ranks.compute_least.value), alone_ns, 10'000);
  EXPECT_NEAR(static_cast<double>(slow.ranks.compute_most.value), alone_ns * 1.1, 10'000);
}

}  // namespace
}  // namespace mfsdp
