#include "gpu_backend/train/data/sample_order.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

#include "gpu_backend/train/data/dataset.hpp"

namespace mfsdp {
namespace {

std::vector<std::int64_t> epoch_of(std::uint64_t seed, std::int64_t epoch, std::int64_t samples) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < samples; ++i)
    order.push_back(shuffled_sample(seed, epoch * samples + i, samples));
  return order;
}

RC_GTEST_PROP(ShuffledSample, EveryEpochIsAPermutation, ()) {
  const auto samples = *rc::gen::inRange<std::int64_t>(1, 700);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto epoch = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
  const auto order = epoch_of(seed, epoch, samples);
  const std::set<std::int64_t> seen(order.begin(), order.end());
  RC_ASSERT(std::ssize(seen) == samples);
  RC_ASSERT(*seen.begin() == 0);
  RC_ASSERT(*seen.rbegin() == samples - 1);
}

RC_GTEST_PROP(ShuffledSample, EpochsAndSeedsDiffer, ()) {
  // Two of 20! orders are equal by chance once in 2.4e18 times.
  const auto samples = *rc::gen::inRange<std::int64_t>(20, 700);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto epoch = *rc::gen::inRange<std::int64_t>(0, 1000);
  RC_ASSERT(epoch_of(seed, epoch, samples) != epoch_of(seed, epoch + 1, samples));
  RC_ASSERT(epoch_of(seed, epoch, samples) != epoch_of(seed + 1, epoch, samples));
}

TEST(ShuffledSample, StaysInRangeAtTheLargestSizes) {
  constexpr std::int64_t kMost = INT64_MAX;
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, kMost - 1, kMost}) {
    const std::int64_t sample = shuffled_sample(3, n, kMost);
    EXPECT_GE(sample, 0);
    EXPECT_LT(sample, kMost);
  }
}

TEST(ShuffledSample, EverySampleComesFirstEquallyOften) {
  // 12,000 seeds of 12 samples: 1000 times each, with a standard deviation of sqrt(1000 * 11 / 12)
  // = 30. Six of them leave one run in a million, were the seeds drawn anew; they are not.
  std::vector<int> first(12);
  for (std::uint64_t seed = 0; seed < 12'000; ++seed)
    ++first[static_cast<std::size_t>(shuffled_sample(seed, 0, 12))];
  for (const int count : first) EXPECT_NEAR(count, 1000, 180);
}

TEST(ShuffledSample, IsTheSameOnEveryMachine) {
  // A checkpoint keeps nothing but the number of samples: another order would repeat some.
  EXPECT_EQ(epoch_of(42, 0, 10), (std::vector<std::int64_t>{4, 2, 9, 3, 1, 6, 8, 5, 0, 7}));
}

RC_GTEST_PROP(SampleNumber, DealsEveryNumberOutOnce, ()) {
  const BatchShape batch{.data_ranks = *rc::gen::inRange(1, 9),
                         .micro_batch = *rc::gen::inRange(1, 4),
                         .microbatches = *rc::gen::inRange(1, 4)};
  const std::int64_t steps = *rc::gen::inRange(1, 4);
  std::set<std::int64_t> numbers;
  for (std::int64_t step = 0; step < steps; ++step)
    for (std::int64_t microbatch = 0; microbatch < batch.microbatches; ++microbatch)
      for (std::int64_t rank = 0; rank < batch.data_ranks; ++rank)
        for (std::int64_t i = 0; i < batch.micro_batch; ++i)
          RC_ASSERT(numbers.insert(sample_number(batch, step, microbatch, rank, i)).second);
  RC_ASSERT(std::ssize(numbers) == steps * batch.global_batch());
  RC_ASSERT(*numbers.begin() == 0);
  RC_ASSERT(*numbers.rbegin() == steps * batch.global_batch() - 1);
}

RC_GTEST_PROP(SampleNumber, RanksNeverShareASampleOfAnEpoch, ()) {
  const BatchShape batch{
      .data_ranks = *rc::gen::inRange(1, 9), .micro_batch = 2, .microbatches = 2};
  const std::int64_t steps = *rc::gen::inRange(1, 5);
  const std::int64_t samples = steps * batch.global_batch() + *rc::gen::inRange(0, 7);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  std::set<std::int64_t> read;
  for (std::int64_t rank = 0; rank < batch.data_ranks; ++rank)
    for (std::int64_t step = 0; step < steps; ++step)
      for (std::int64_t place = 0; place < 4; ++place)
        RC_ASSERT(
            read.insert(shuffled_sample(
                            seed, sample_number(batch, step, place / 2, rank, place % 2), samples))
                .second);
}

TEST(SampleNumber, AnyWorldReadsTheSameGlobalBatch) {
  const auto step_of = [](const BatchShape& batch) {
    std::multiset<std::int64_t> numbers;
    for (std::int64_t microbatch = 0; microbatch < batch.microbatches; ++microbatch)
      for (std::int64_t rank = 0; rank < batch.data_ranks; ++rank)
        for (std::int64_t i = 0; i < batch.micro_batch; ++i)
          numbers.insert(sample_number(batch, 5, microbatch, rank, i));
    return numbers;
  };
  const auto alone = step_of({.data_ranks = 1, .micro_batch = 12, .microbatches = 1});
  EXPECT_EQ(step_of({.data_ranks = 4, .micro_batch = 1, .microbatches = 3}), alone);
  EXPECT_EQ(step_of({.data_ranks = 3, .micro_batch = 2, .microbatches = 2}), alone);
}

}  // namespace
}  // namespace mfsdp
