// Verdicts of samples, of each kind, and on steps that a GPU took.
#include "reports/statistics/judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "reports/statistics/blocks.hpp"
#include "reports/statistics/sample.hpp"
#include "tests/support/gpu_steps.hpp"

namespace mfsdp {
namespace {

using Values = std::vector<double>;

const Values kBase{100, 101, 102, 103, 104};

TEST(JudgeDifference, EachVerdict) {
  const auto judged = [](const Values& samples, double tolerance, Better better) {
    return judge_difference(kBase, samples, tolerance, better).verdict;
  };
  const Values slower{110, 111, 112, 113, 114.5};
  EXPECT_EQ(judged(slower, 2, Better::lower), Verdict::fail);
  EXPECT_EQ(judged(slower, 2, Better::higher), Verdict::improved);
  EXPECT_EQ(judged(slower, 20, Better::lower), Verdict::pass);
  const Values faster{90, 91, 92, 93, 94.5};
  EXPECT_EQ(judged(faster, 2, Better::lower), Verdict::improved);
  EXPECT_EQ(judged(faster, 2, Better::higher), Verdict::fail);
  EXPECT_EQ(judged(kBase, 3, Better::lower), Verdict::pass);
  const Values noisy{80, 95, 103, 115, 130};
  EXPECT_EQ(judged(noisy, 2, Better::lower), Verdict::inconclusive);
  EXPECT_EQ(judged(noisy, 2, Better::higher), Verdict::inconclusive);
}

TEST(JudgeDifference, WhatIsAllowedDoesNotFailHoweverSureItIs) {
  // 1.5 % slower for sure, 2 % allowed: each sample is worse than each of the baseline's.
  const Values baseline{100, 100.1, 100.2, 100.3, 100.4, 100.5};
  Values samples;
  for (const double value : baseline) samples.push_back(value * 1.015);
  const SampleVerdict judged = judge_difference(baseline, samples, 2, Better::lower);
  EXPECT_LE(judged.test.p_larger, kFalseAlarm);
  EXPECT_GT(judged.p_worse, 0.99);
  EXPECT_EQ(judged.verdict, Verdict::pass);
  EXPECT_EQ(judge_difference(samples, baseline, 2, Better::higher).verdict, Verdict::pass);
}

TEST(JudgeDifference, FourSamplesSayNothing) {
  const Values four{200, 201, 202, 203};
  const SampleVerdict few = judge_difference(kBase, four, 2, Better::lower);
  EXPECT_EQ(few.verdict, Verdict::inconclusive);
  EXPECT_EQ(few.why, "4 samples, at least 5 are needed");
  EXPECT_EQ(judge_difference(Values{1}, kBase, 2, Better::lower).why,
            "1 sample of the baseline, at least 5 are needed");
}

TEST(JudgeLimit, EachVerdict) {
  const auto judged = [](std::optional<double> worst, std::optional<double> best, Better better) {
    return judge_limit(kBase, worst, best, better).verdict;  // of five: all must lie on one side
  };
  EXPECT_EQ(judged(99, {}, Better::lower), Verdict::fail);
  EXPECT_EQ(judged(102, {}, Better::lower), Verdict::inconclusive);
  EXPECT_EQ(judged(104, {}, Better::lower), Verdict::pass);
  EXPECT_EQ(judged(110, 105, Better::lower), Verdict::improved);
  EXPECT_EQ(judged(110, 103, Better::lower), Verdict::pass);
  EXPECT_EQ(judged({}, 90, Better::lower), Verdict::pass);
  EXPECT_EQ(judged(105, {}, Better::higher), Verdict::fail);
  EXPECT_EQ(judged(100, {}, Better::higher), Verdict::pass);
  EXPECT_EQ(judged(90, 99, Better::higher), Verdict::improved);
  EXPECT_EQ(judge_limit(Values{1, 2}, 1.5, {}, Better::lower).verdict, Verdict::inconclusive);
}

// ---- measured steps
// ------------------------------------------------------------------------------

constexpr int kPairs = 1000;
constexpr std::size_t kASide = 10;

/// The blocks of all runs of a program, as means.
Values all_blocks(const std::string& program) {
  Values blocks;
  for (const auto& series : test::gpu_steps(program)) {
    const Blocks cut = blocks_of(series);
    blocks.insert(blocks.end(), cut.means.begin(), cut.means.end());
  }
  return blocks;
}

/// Draws `count` of the values, each once, and takes them out. The same on every machine.
Values take_some(Values& from, std::size_t count, test::Draw& draw) {
  Values taken;
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::ptrdiff_t>(draw.below(from.size()));
    taken.push_back(from[static_cast<std::size_t>(at)]);
    from.erase(from.begin() + at);
  }
  return taken;
}

/// How often each verdict is reached by pairs of ten blocks a side; `slower` multiplies the second.
std::map<Verdict, int> verdicts(const Values& first, const Values& second, double slower) {
  test::Draw draw(2026);
  std::map<Verdict, int> counts;
  for (int pair = 0; pair < kPairs; ++pair) {
    Values before = first;
    const Values baseline = take_some(before, kASide, draw);
    Values after = &first == &second ? before : second;
    Values samples = take_some(after, kASide, draw);
    for (double& sample : samples) sample *= slower;
    const double tolerance = 0.02 * median_of(baseline);
    ++counts[judge_difference(baseline, samples, tolerance, Better::lower).verdict];
  }
  return counts;
}

double deviation_of(const Values& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

TEST(MeasuredSteps, DeviateByLessThanTwoPercent) {
  for (const char* program : {"a", "b"})
    for (const auto& series : test::gpu_steps(program)) {
      ASSERT_EQ(series.size(), 150U);
      const std::vector<double> warm(series.begin() + 5, series.end());
      EXPECT_LT(deviation_of(warm) / mean_of(warm), 0.02);
    }
}

TEST(MeasuredSteps, OneProgramIsNotFoundSlowerThanItself) {
  for (const char* program : {"a", "b"}) {
    const Values blocks = all_blocks(program);
    const auto counts = verdicts(blocks, blocks, 1);
    EXPECT_LT(counts.contains(Verdict::fail) ? counts.at(Verdict::fail) : 0, kPairs / 100);
    EXPECT_GT(counts.at(Verdict::pass), kPairs * 95 / 100);
  }
}

TEST(MeasuredSteps, OneRunIsNotFoundSlowerThanAnotherOfItsProgram) {
  // Neighbouring blocks of one run each: what drifts between runs is in the difference.
  int failed = 0;
  int pairs = 0;
  for (const char* program : {"a", "b"}) {
    const auto runs = test::gpu_steps(program);
    for (const auto& one : runs)
      for (const auto& other : runs) {
        if (&one == &other) continue;
        const Values baseline = blocks_of(one).means;
        const double tolerance = 0.02 * median_of(baseline);
        const auto judged =
            judge_difference(baseline, blocks_of(other).means, tolerance, Better::lower);
        failed += judged.verdict == Verdict::fail;
        ++pairs;
      }
  }
  EXPECT_EQ(pairs, 180);
  EXPECT_EQ(failed, 0);
}

TEST(MeasuredSteps, ABlockMoreIsFound) {
  // Program b has 19 blocks where a has 18: measured 5 % slower.
  const Values a = all_blocks("a");
  const Values b = all_blocks("b");
  EXPECT_NEAR(median_of(b) / median_of(a), 1.05, 0.005);
  EXPECT_GT(verdicts(a, b, 1).at(Verdict::fail), kPairs * 95 / 100);
  EXPECT_GT(verdicts(b, a, 1).at(Verdict::improved), kPairs * 95 / 100);
  EXPECT_GT(verdicts(a, a, 1.05).at(Verdict::fail), kPairs * 95 / 100);
}

TEST(MeasuredSteps, ASlowDownThatIsAllowedDoesNotFail) {
  // 1.5 % with 2 % allowed: the rank test of no difference would be sure of nearly all.
  for (const char* program : {"a", "b"}) {
    const Values blocks = all_blocks(program);
    const auto counts = verdicts(blocks, blocks, 1.015);
    EXPECT_LT(counts.contains(Verdict::fail) ? counts.at(Verdict::fail) : 0, kPairs / 100);
  }
}

TEST(MeasuredSteps, NoiseIsInconclusive) {
  const Values noisy = all_blocks("noisy");
  EXPECT_GT(deviation_of(noisy) / mean_of(noisy), 0.05);
  const auto same = verdicts(noisy, noisy, 1);
  EXPECT_LT(same.contains(Verdict::fail) ? same.at(Verdict::fail) : 0, kPairs / 100);
  EXPECT_GT(same.at(Verdict::inconclusive), kPairs * 3 / 4);  // the others look faster
  const auto slower = verdicts(noisy, noisy, 1.05);
  EXPECT_GT(slower.at(Verdict::inconclusive), kPairs / 2);
}

}  // namespace
}  // namespace mfsdp
