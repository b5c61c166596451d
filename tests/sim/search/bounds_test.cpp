// Bounds of memory and time against plans and their simulation, and pruned searches against whole
// ones.
#include "sim/search/bounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/search/fit_search.hpp"
#include "sim/search/search.hpp"
#include "sim/search/training_cost.hpp"
#include "tests/sim/search/small_job.hpp"

namespace mfsdp {
namespace {

using test::job;

PredictionRequests& catalogue() {
  static PredictionRequests requests(test::kScenarios);
  return requests;
}

using Random = std::mt19937;

template <class T>
T one_of(Random& random, const std::vector<T>& values) {
  return values[random() % values.size()];
}

template <class T>
void choose(Random& random, JobOptions& job, std::string_view flag, std::vector<T> values) {
  apply(setting(flag, one_of(random, values)), job);
}

/// A job on several nodes with random axes, possibly invalid.
JobOptions any_job(Random& random) {
  using Counts = std::vector<std::int64_t>;
  JobOptions asked = job(one_of<std::string>(random, {"llama3_1b", "llama_tiny", "moe_nano"}),
                         one_of<std::int64_t>(random, {8, 16, 32}));
  choose(random, asked, "--tp", Counts{1, 1, 2, 4});
  choose(random, asked, "--cp", Counts{1, 1, 2});
  choose(random, asked, "--pp", Counts{1, 1, 2, 4});
  choose(random, asked, "--micro-batch", Counts{1, 2});
  choose(random, asked, "--outer-dp", Counts{1, 1, 2});
  choose(random, asked, "--global-batch", Counts{32, 64});
  choose(random, asked, "--strategy",
         std::vector<NamedStrategy>{{.strategy = Strategy::optim_grads_params},
                                    {.strategy = Strategy::optim},
                                    {.strategy = Strategy::no_shard}});
  choose(random, asked, "--recompute",
         std::vector<RecomputePolicy>{
             {.kind = Recompute::none}, {.kind = Recompute::selective}, {.kind = Recompute::full}});
  if (asked.common.pipeline_parallel == 1) return asked;
  choose(random, asked, "--vpp", Counts{1, 1, 2});
  choose(random, asked, "--schedule",
         std::vector{PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe,
                     PipelineSchedule::interleaved, PipelineSchedule::zb_h1});
  return asked;
}

TEST(Bounds, AreNeverAboveThePlanAndItsSimulation) {
  constexpr int kJobs = 150;
  Random random(5);
  StepFloors floors;  // shared: parts that are taken for equal must be
  int valid = 0;
  std::string refused;
  for (int i = 0; i < kJobs; ++i) {
    const auto request = catalogue().read(any_job(random));
    if (!request) {
      refused = request.error().message();
      continue;
    }
    ++valid;
    const auto run = predict(*request);
    ASSERT_TRUE(run) << run.error().message();
    EXPECT_LE(least_allocated(*request), run->run.memory.allocated) << i;
    EXPECT_GT(floors.of(*request), 0);
    EXPECT_LE(floors.of(*request), static_cast<double>(run->run.time.step.value)) << i;
  }
  EXPECT_GT(valid, kJobs / 10) << refused;
}

/// Compute of one stage and of four, without FSDP: nearly all of the step.
TEST(Bounds, AreCloseWhereComputeDecides) {
  StepFloors floors;
  for (const std::int64_t stages : {1, 4}) {
    JobOptions asked = job("llama3_8b", 8);
    asked.common.gpu = "h200";
    for (const Setting& one :
         {setting("--pp", stages), setting("--global-batch", std::int64_t{128}),
          setting("--recompute", RecomputePolicy{.kind = Recompute::full})})
      apply(one, asked);
    const auto request = catalogue().read(asked);
    ASSERT_TRUE(request) << request.error().message();
    const auto run = predict(*request);
    ASSERT_TRUE(run) << run.error().message();
    const double share = floors.of(*request) / static_cast<double>(run->run.time.step.value);
    EXPECT_GT(share, 0.9) << stages;
    EXPECT_LE(share, 1) << stages;
  }
}

TEST(Bounds, OfJitterAndOfOtherEnginesAreNotKnown) {
  StepFloors floors;
  JobOptions asked = job("llama_nano");
  asked.jitter = {1, 50};
  EXPECT_EQ(floors.of(*catalogue().read(asked)), 0);
  asked.jitter = {0, 1};
  asked.engine = EngineKind::fsdp2;
  const auto request = catalogue().read(asked);
  ASSERT_TRUE(request);
  EXPECT_EQ(floors.of(*request), 0);
  EXPECT_EQ(floors.best_case(*request).time.tokens_per_second_per_gpu,
            std::numeric_limits<double>::infinity());
}

/// Axes that the random spaces choose from.
std::vector<SearchAxis> all_axes() {
  using Counts = std::vector<std::int64_t>;
  return {axis("--tp", Counts{1, 2}),
          axis("--cp", Counts{1, 2}),
          axis("--pp", Counts{1, 2, 4}),
          axis("--micro-batch", Counts{1, 2}),
          axis("--outer-dp", Counts{1, 2}),
          axis("--strategy", std::vector<NamedStrategy>{{.strategy = Strategy::optim_grads_params},
                                                        {.strategy = Strategy::optim},
                                                        {.strategy = Strategy::no_shard}}),
          axis("--recompute",
               std::vector<RecomputePolicy>{{.kind = Recompute::none}, {.kind = Recompute::full}}),
          axis("--schedule", std::vector{PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe})};
}

/// Front of tokens per second, cost and memory, as positions in the space.
std::vector<std::string> front_of(const SearchResult& result) {
  std::vector<TradeOff> points;
  for (const std::size_t place : result.ranked) {
    const PredictedRun& run = *result.candidates[place].run;
    points.push_back({.memory = run.memory.deciding(),
                      .speed = tokens_per_second(run),
                      .cost = cost_of(run, {})});
  }
  std::vector<std::string> flags;
  for (const std::size_t point : pareto_front(points))
    flags.push_back(flags_text(result.candidates[result.ranked[point]].settings));
  return flags;
}

/// 50 spaces, with one goal and with two: the answers of a search that predicts everything.
TEST(Bounds, PrunedSearchesFindWhatWholeOnesFind) {
  std::mt19937 random(56);
  std::int64_t pruned = 0;
  for (int space_number = 0; space_number < 50; ++space_number) {
    SearchSpace space;
    for (SearchAxis& one : all_axes())
      if (random() % 2 == 0) space.axes.push_back(std::move(one));
    JobOptions asked = job(space_number % 2 == 0 ? "llama_nano" : "llama_tiny", 16);
    apply(setting("--global-batch", std::int64_t{32}), asked);
    for (const char* flag : {"--placement", "--gather", "--reduce", "--prefetch", "--grad-slots"})
      asked.given.emplace_back(flag);
    StepFloors floors;
    SearchGoal goal{.score = tokens_per_second};
    if (space_number % 3 == 0)
      goal.also = [](const RunFigures& run) { return 1 / cost_of(run, {}); };
    const auto whole = search(asked, space, goal, catalogue());
    goal.best_case = [&](const PredictionRequest& request) { return floors.best_case(request); };
    const auto found = search(asked, space, goal, catalogue());
    ASSERT_EQ(whole.has_value(), found.has_value());
    if (!whole) continue;
    EXPECT_EQ(found->counts.invalid, whole->counts.invalid);
    EXPECT_EQ(found->counts.predicted + found->counts.pruned, whole->counts.predicted);
    pruned += found->counts.pruned;
    ASSERT_FALSE(found->ranked.empty());
    EXPECT_EQ(flags_text(found->candidates[found->ranked.front()].settings),
              flags_text(whole->candidates[whole->ranked.front()].settings));
    if (goal.also) {
      EXPECT_EQ(front_of(*found), front_of(*whole));
    }
  }
  EXPECT_GT(pruned, 100);
}

TEST(Search, CountsRefusalsByRule) {
  JobOptions asked = job("llama_nano", 16);
  apply(setting("--global-batch", std::int64_t{32}), asked);
  const SearchSpace space{.axes = {axis("--tp", std::vector<std::int64_t>{1, 3, 5, 7}),
                                   axis("--micro-batch", std::vector<std::int64_t>{1, 3})}};
  const auto result = search(asked, space, {.score = tokens_per_second}, catalogue());
  ASSERT_TRUE(result);
  EXPECT_EQ(result->counts.invalid, 7);
  std::int64_t sum = 0;
  for (const Refusal& refusal : result->refusals) sum += refusal.count;
  EXPECT_EQ(sum, 7);
  ASSERT_FALSE(result->refusals.empty());
  EXPECT_GE(result->refusals.front().count, 3);
}

TEST(Goodput, IsDalysModel) {
  const Failures failures{
      .mtbf_hours = 50'000, .save_interval = {}, .save_time = 30, .restart_time = 600};
  // One of 16,384 GPUs every 10,986 s: sqrt(2 x 30 x 10986) is 812 s, by Young.
  EXPECT_NEAR(save_interval(16'384, failures), 812 - 30, 15);
  const double best = goodput_of(16'384, failures);
  EXPECT_NEAR(best, 0.877,
              0.005);  // 1 - 30 / 812 - 812 / (2 x 10986) - 600 / 10986 and second order
  for (const double interval : {500.0, 1'200.0}) {
    Failures other = failures;
    other.save_interval = interval;
    EXPECT_LT(goodput_of(16'384, other), best);
  }
  EXPECT_EQ(goodput_of(16'384, {}), 1);
  EXPECT_GT(goodput_of(64, failures), 0.99);
}

}  // namespace
}  // namespace mfsdp
