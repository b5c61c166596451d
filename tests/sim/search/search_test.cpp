// Searches as a library call: against predicting every combination, pruned, and cancelled.
#include "sim/search/search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <set>

#include "sim/search/training_cost.hpp"
#include "tests/sim/search/small_job.hpp"

namespace mfsdp {
namespace {

using test::job;
using test::SmallJobs;
using ::testing::ElementsAre;

/// Llama-nano on 8 GPUs, with nothing to refine.
JobOptions nano() {
  JobOptions asked = job("llama_nano");
  for (const char* flag : {"--placement", "--gather", "--reduce", "--prefetch", "--grad-slots"})
    asked.given.emplace_back(flag);
  return asked;
}

/// 4 strategies, 3 policies, 3 micro-batches, 2 lengths.
SearchSpace space_of_72() {
  std::vector<NamedStrategy> strategies;
  for (const Strategy strategy :
       {Strategy::optim_grads_params, Strategy::optim_grads, Strategy::optim, Strategy::no_shard})
    strategies.push_back({.strategy = strategy});
  return {.axes = {axis("--strategy", strategies),
                   axis("--recompute", std::vector<RecomputePolicy>{{.kind = Recompute::none},
                                                                    {.kind = Recompute::selective},
                                                                    {.kind = Recompute::full}}),
                   axis("--micro-batch", std::array<std::int64_t, 3>{1, 2, 4}),
                   axis("--seq-len", std::array<std::int64_t, 2>{64, 128})}};
}

TEST(SearchSpace, TheLastAxisChangesFastest) {
  const SearchSpace space = space_of_72();
  ASSERT_EQ(space.size(), 72U);
  EXPECT_EQ(flags_text(space.combination(3)),
            "--strategy optim_grads_params --recompute none --micro-batch 2 --seq-len 128");
  EXPECT_EQ(space.axes[1].text(), "--recompute none,selective,full");
  EXPECT_EQ(SearchSpace{}.size(), 1U);
}

TEST(Search, RanksAllCombinationsBySpeed) {
  SmallJobs small;
  const JobOptions asked = nano();
  const SearchSpace space = space_of_72();
  const auto result = search(asked, space, {.score = tokens_per_second}, small.requests());
  ASSERT_TRUE(result) << result.error().message();
  ASSERT_TRUE(result->batch);
  EXPECT_EQ(result->batch->sequences, 32);  // 4 for each of 8 GPUs
  EXPECT_EQ(result->counts.predicted, 72);
  ASSERT_EQ(result->ranked.size(), 72U);
  double before = std::numeric_limits<double>::infinity();
  for (const std::size_t place : result->ranked) {
    std::vector<Setting> settings = space.combination(place);
    settings.push_back(setting("--global-batch", std::int64_t{32}));
    const auto request = small.requests().read(with_settings(asked, settings));
    ASSERT_TRUE(request);
    const PredictedRun alone = predict(*request)->run;
    const PredictedRun& found = *result->candidates[place].run;
    EXPECT_EQ(found.plan_hash, alone.plan_hash);
    EXPECT_EQ(found.time.step, alone.time.step);
    EXPECT_LE(tokens_per_second(found), before);
    before = tokens_per_second(found);
  }
}

/// Every split of 64 GPUs into ranks that read other sequences, share sequences and share blocks. No
/// bound of memory is above the memory; combinations whose heads do not divide are invalid.
TEST(Search, SharesRanksOutToTensorAndContextParallelism) {
  PredictionRequests requests(test::kScenarios);
  JobOptions asked = job("llama3_70b", 64);
  asked.common.gpu = "h100";
  for (const char* flag : {"--placement", "--gather", "--reduce", "--prefetch", "--grad-slots"})
    asked.given.emplace_back(flag);
  const SearchSpace space{
      .axes = {axis("--recompute", std::array{RecomputePolicy{.kind = Recompute::selective},
                                              RecomputePolicy{.kind = Recompute::full}}),
               axis("--tp", std::array<std::int64_t, 3>{1, 4, 8}),
               axis("--cp", std::array<std::int64_t, 2>{1, 2}),
               axis("--global-batch", std::array<std::int64_t, 1>{64})}};
  const auto result = search(asked, space, {.score = tokens_per_second}, requests);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->counts.invalid, 2);  // 16 ranks have no equal numbers of 8 key-value heads
  EXPECT_EQ(result->counts.predicted + result->counts.too_large, 10);
  std::set<std::int64_t> readers;
  for (const std::size_t place : result->ranked) {
    const Candidate& candidate = result->candidates[place];
    const PlanConfig& config = candidate.request->config;
    readers.insert(data_ranks(config.mesh));
    EXPECT_EQ(config.global_batch(), 64);
    EXPECT_LE(least_allocated(*candidate.request), candidate.run->memory.allocated);
  }
  EXPECT_EQ(readers, (std::set<std::int64_t>{8, 16, 32, 64}));
}

/// By the bound, only plans of ZeRO-3 can be fast. They come first, and then other plans are no
/// longer predicted.
TEST(Search, PrunesCandidatesWhoseBoundIsNotGoodEnough) {
  SmallJobs small;
  const SearchGoal goal{.score = tokens_per_second,
                        .best_case = [](const PredictionRequest& request) {
                          RunFigures figures;
                          figures.cluster.gpus = 1;
                          figures.time.tokens_per_second_per_gpu =
                              request.config.strategy == Strategy::optim_grads_params
                                  ? std::numeric_limits<double>::infinity()
                                  : 1.0;
                          return figures;
                        }};
  std::int64_t kept = 0;
  std::int64_t done = 0;
  const auto result = search(nano(), space_of_72(), goal, small.requests(),
                             {.progress = [&](std::int64_t so_far, std::int64_t) { done = so_far; },
                              .keep = [&](PredictedRun&) -> Result<void> {
                                ++kept;
                                return {};
                              }});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->counts.predicted, 18);
  EXPECT_EQ(result->counts.pruned, 72 - 18);
  EXPECT_EQ(kept, result->counts.predicted);
  EXPECT_EQ(done, 24);  // three rounds of eight: pruned candidates are done too
  EXPECT_EQ(result->ranked.size(), 18U);
}

TEST(Search, ACancelledSearchRanksNothing) {
  SmallJobs small;
  std::int64_t predicted = 0;
  const auto result = search(nano(), space_of_72(), {.score = tokens_per_second}, small.requests(),
                             {.cancelled = [&] { return predicted >= 3; },
                              .keep = [&](PredictedRun&) -> Result<void> {
                                ++predicted;
                                return {};
                              }});
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->complete);
  EXPECT_TRUE(result->ranked.empty());
  EXPECT_GE(result->counts.predicted, 3);
  EXPECT_LT(result->counts.predicted, 72);
}

/// The fields that a job leaves open, but none that it sets.
TEST(Search, OpenFieldsBecomeAxes) {
  SmallJobs small;
  JobOptions asked = job("llama_nano", 16);
  apply(setting("--micro-batch", std::int64_t{2}), asked);
  const auto space = with_open_axes({}, asked, small.requests());
  ASSERT_TRUE(space);
  std::vector<std::string> axes;
  for (const SearchAxis& axis : space->axes) axes.push_back(axis.text());
  EXPECT_THAT(axes, ElementsAre("--strategy optim_grads_params,optim_grads,optim,no_shard",
                                "--recompute none,selective,full,full:1,full:2", "--outer-dp 1,2"));
}

}  // namespace
}  // namespace mfsdp
