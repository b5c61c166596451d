#include "gpu_backend/train/batches.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tests/gpu_backend/train/training.hpp"

namespace mfsdp {
namespace {

PlanConfig shaped(std::int64_t ranks, std::int64_t micro_batch, std::int64_t microbatches) {
  PlanConfig config = test::nano(ranks);
  config.micro_batch = micro_batch;
  config.microbatches = microbatches;
  return config;
}

/// How often each sample is read in a step. Counting's samples begin with their own number.
std::map<std::int32_t, int> samples_of_step(const PlanConfig& config, std::int64_t step) {
  const test::Counting data;
  std::map<std::int32_t, int> read;
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(2 * config.tokens_per_microbatch()));
  for (std::int64_t rank = 0; rank < config.mesh.world_size(); ++rank)
    for (std::int64_t m = 0; m < config.microbatches; ++m) {
      EXPECT_TRUE(fill_batch(data, train_batch(config, rank, step, m), 3, config, tokens));
      for (std::int64_t i = 0; i < config.micro_batch; ++i)
        ++read[tokens[static_cast<std::size_t>(i * config.seq_len)]];
    }
  return read;
}

TEST(Batches, AStepReadsTheSameSamplesHoweverItIsDealtOut) {
  for (const std::int64_t step : {0, 1, 7}) {
    const auto expected = samples_of_step(shaped(1, 1, 12), step);
    EXPECT_EQ(expected.size(), 12U);  // none twice: 64 samples, steps of 12, no epoch's end
    EXPECT_EQ(samples_of_step(shaped(4, 3, 1), step), expected);
    EXPECT_EQ(samples_of_step(shaped(2, 1, 6), step), expected);
    EXPECT_EQ(samples_of_step(shaped(3, 2, 2), step), expected);
  }
}

TEST(Batches, TokensComeBeforeLabelsSampleBySample) {
  const PlanConfig config = shaped(1, 2, 1);
  test::Counting data;
  data.size = 1;
  std::vector<std::int32_t> tokens(2 * 2 * 16);
  ASSERT_TRUE(fill_batch(data, train_batch(config, 0, 0, 0), 3, config, tokens));
  for (std::size_t t = 0; t < 16; ++t)
    for (const std::size_t sample : {0U, 1U}) {
      EXPECT_EQ(tokens[16 * sample + t], static_cast<std::int32_t>(t));
      EXPECT_EQ(tokens[32 + 16 * sample + t], static_cast<std::int32_t>(t) + 1);
    }
}

/// Counting's samples are one document each; those that an evaluation leaves out are one as well.
TEST(Batches, PositionsComeBehindLabels) {
  PlanConfig config = shaped(1, 3, 1);
  config.document_mask = true;
  const test::Counting data;
  std::vector<std::int32_t> tokens(3 * 3 * 16, -1);
  ASSERT_TRUE(fill_batch(data, eval_batch(config, 0, 0, 2), 3, config, tokens));
  for (std::size_t t = 0; t < 3 * 16; ++t)
    EXPECT_EQ(tokens[2 * 3 * 16 + t], static_cast<std::int32_t>(t % 16));
  EXPECT_EQ(tokens[3 * 16 + 2 * 16], kIgnoreIndex);
}

/// Each has its part of the sample, and the label after its last token is the next part's first.
TEST(Batches, RanksThatShareSequencesHaveConsecutiveParts) {
  PlanConfig config = shaped(2, 1, 1);
  config.mesh.resize(Axis::cp, 4);
  config.document_mask = true;
  const test::Counting data;
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    std::vector<std::int32_t> tokens(4 + 4 + 16, -1);
    std::vector<std::int32_t> of_first(tokens);
    ASSERT_TRUE(fill_batch(data, train_batch(config, rank, 0, 0), 3, config, tokens));
    ASSERT_TRUE(fill_batch(data, train_batch(config, rank / 4 * 4, 0, 0), 3, config, of_first));
    for (std::size_t t = 0; t < 4; ++t) {
      const std::int32_t id = of_first[0] + static_cast<std::int32_t>(rank % 4 * 4 + t);
      EXPECT_EQ(tokens[t], id) << rank;
      EXPECT_EQ(tokens[4 + t], id + 1) << rank;
    }
    for (std::size_t t = 0; t < 16; ++t) EXPECT_EQ(tokens[8 + t], static_cast<std::int32_t>(t));
  }
}

/// Where they gather keys, each has the first chunk that is left, and the last one. Labels are those of
/// the whole sample, also at the ends of chunks; so are positions.
TEST(Batches, RanksThatGatherKeysHaveTwoChunks) {
  PlanConfig config = shaped(1, 1, 1);
  config.mesh.resize(Axis::cp, 4);
  config.cp_comm = ContextExchange::all_gather;
  config.document_mask = true;
  const test::Counting data;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    std::vector<std::int32_t> tokens(4 + 4 + 16, -1);
    std::vector<std::int32_t> of_first(tokens);
    ASSERT_TRUE(fill_batch(data, train_batch(config, rank, 0, 0), 3, config, tokens));
    ASSERT_TRUE(fill_batch(data, train_batch(config, 0, 0, 0), 3, config, of_first));
    for (std::size_t t = 0; t < 4; ++t) {
      const std::int64_t chunk = t < 2 ? rank : 7 - rank;
      const std::int32_t id = of_first[0] + static_cast<std::int32_t>(2 * chunk + t % 2);
      EXPECT_EQ(tokens[t], id) << rank;
      EXPECT_EQ(tokens[4 + t], id + 1) << rank;
    }
    for (std::size_t t = 0; t < 16; ++t) EXPECT_EQ(tokens[8 + t], static_cast<std::int32_t>(t));
  }
}

TEST(Batches, AnEvaluationLeavesOutWhatIsTooMuch) {
  const PlanConfig config = shaped(2, 3, 5);  // six samples at once
  EXPECT_EQ(eval_batches(config, 12), 2);
  EXPECT_EQ(eval_batches(config, 13), 3);
  const test::Counting data;
  std::vector<std::int32_t> tokens(2 * 3 * 16);
  std::map<std::int32_t, int> read;
  int muted = 0;
  for (std::int64_t batch = 0; batch < 2; ++batch)
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(fill_batch(data, eval_batch(config, rank, batch, 8), 3, config, tokens));
      for (std::size_t sample = 0; sample < 3; ++sample) {
        const std::int32_t label = tokens[48 + 16 * sample];
        if (label == kIgnoreIndex)
          ++muted;
        else
          ++read[tokens[16 * sample]];
      }
    }
  EXPECT_EQ(muted, 4);  // 2 batches of 6, less 8
  EXPECT_EQ(read.size(), 8U);
}

}  // namespace
}  // namespace mfsdp
