#include "verify/cpu/kernels/optimizer.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/verify/cpu/kernels/gradients.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::kernels {
namespace {

using test::RandomValues;
using test::Values;

/// The paper's algorithm with its own variables, one weight over several steps.
double textbook(double weight, const Values& gradients, double rate, double decay, double beta1,
                double beta2, double epsilon) {
  double m = 0;
  double v = 0;
  for (std::size_t t = 1; t <= gradients.size(); ++t) {
    const double g = gradients[t - 1];
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, static_cast<double>(t)));
    const double v_hat = v / (1 - std::pow(beta2, static_cast<double>(t)));
    weight = weight - rate * (m_hat / (std::sqrt(v_hat) + epsilon) + decay * weight);
  }
  return weight;
}

RC_GTEST_PROP(AdamWUpdate, IsTheTextbooks, (std::uint32_t seed, bool decays)) {
  RandomValues random(seed);
  constexpr std::size_t steps = 5;
  const Values start = random(4);
  Values weights = start;
  Values exp_avg(4);
  Values exp_avg_sq(4);
  std::vector<Values> gradients(4);  // of each weight over time
  for (std::size_t t = 1; t <= steps; ++t) {
    const Values summed = random(4);
    for (std::size_t i = 0; i < 4; ++i) gradients[i].push_back(summed[i] * 0.25);
    advance<AdamwRule, double, double>({.learning_rate = 0.01,
                                        .keep = decays ? 1 - 0.01 * 0.1 : 1,
                                        .beta1 = 0.9,
                                        .beta2 = 0.95,
                                        .epsilon = 1e-8,
                                        .corrected_rate = 0.01 / (1 - std::pow(0.9, t)),
                                        .correction_root = std::sqrt(1 - std::pow(0.95, t))},
                                       0.25, 4, summed.data(), {exp_avg.data(), exp_avg_sq.data()},
                                       weights.data());
  }
  for (std::size_t i = 0; i < 4; ++i) {
    const double expected =
        textbook(start[i], gradients[i], 0.01, decays ? 0.1 : 0, 0.9, 0.95, 1e-8);
    RC_ASSERT(std::fabs(weights[i] - expected) < 1e-12);
  }
}

TEST(Sgd, StepsAgainstTheGradient) {
  std::vector<double> weights{2, -3};
  const std::vector<double> gradients{8, 4};
  advance<SgdRule, double, double>({.learning_rate = 0.1, .keep = 1 - 0.1 * 0.5}, 0.25, 2,
                                   gradients.data(), {}, weights.data());
  EXPECT_DOUBLE_EQ(weights[0], 2 * (1 - 0.1 * 0.5) - 0.1 * 8 * 0.25);
  EXPECT_DOUBLE_EQ(weights[1], -3 * (1 - 0.1 * 0.5) - 0.1 * 4 * 0.25);
}

TEST(Loss, IsTheMeanOverAllRanksTokens) {
  const std::vector<float> sums{6, 3, 10, 5};  // two ranks: loss, tokens
  const LossReport report = finish_loss<float>(sums);
  EXPECT_EQ(report.mean_loss, 2);  // 16 / 8
  EXPECT_EQ(report.tokens, 8);
  EXPECT_EQ(report.inverse_tokens, 0.125F);
}

TEST(Loss, WithoutTokensIsZeroNotNaN) {
  const std::vector<float> sums{0, 0};
  EXPECT_EQ(finish_loss<float>(sums).mean_loss, 0);
  EXPECT_EQ(finish_loss<float>(sums).inverse_tokens, 0);
}

TEST(Norm, IsOfTheMeanGradientAndClips) {
  const std::vector<float> partials{900, 700};  // root of the sum: 40
  NormReport report = finish_norm(partials, 0.125, 1);
  EXPECT_FLOAT_EQ(report.norm, 5);
  EXPECT_FLOAT_EQ(report.clip_factor, 0.2F);
  EXPECT_EQ(report.non_finite, 0);
  EXPECT_EQ(finish_norm(partials, 0.125, 10).clip_factor, 1);  // shorter than the limit
  EXPECT_EQ(finish_norm(partials, 0.125, 0).clip_factor, 1);   // no clipping
  report = finish_norm(std::vector<float>{1, INFINITY}, 0.125, 1);
  EXPECT_EQ(report.non_finite, 1);
}

TEST(SumOfSquares, IsInDouble) {
  const std::vector<float> values{4096, 1, 1};  // 2^24 + 2: in float each 1 would vanish
  EXPECT_EQ(sum_of_squares(3, values.data()), 16777218.0);
}

TEST(Accumulate, CastsThenAdds) {
  const std::vector<float> in{1.00390625F, 3};
  std::vector<Bf16> out(2);
  accumulate(2, in.data(), false, out.data());
  EXPECT_EQ(widen(out[0]), 1);  // 1 + 2^-8: a tie, even is down
  accumulate(2, in.data(), true, out.data());
  EXPECT_EQ(widen(out[0]), 2);
  EXPECT_EQ(widen(out[1]), 6);
}

// In fp32 2^24 + 1 + 1 is 2^24 from the left, 2^24 + 2 from the right.
TEST(SumParts, GoesFromRankToRank) {
  const std::vector<float> in{16'777'216, 1, 1, 2, 1, 3};  // three ranks of two
  std::vector<float> sums(2);
  sum_parts(3, 2, 2, in.data(), sums.data());
  EXPECT_EQ(sums, (std::vector<float>{16'777'216, 1 + 2 + 3}));
}

}  // namespace
}  // namespace mfsdp::kernels
