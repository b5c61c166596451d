#include "verify/cpu/kernels/norm.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/verify/cpu/kernels/gradients.hpp"

namespace mfsdp::kernels {
namespace {

using test::finite_differences;
using test::kEpsilon;
using test::RandomValues;
using test::relative_error;
using test::Values;

/// y = x / sqrt(mean(x^2) + epsilon) * w, row by row.
Values naive_norm(const Values& x, const Values& w) {
  Values y(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += w.size()) {
    double squares = 0;
    for (std::size_t j = 0; j < w.size(); ++j) squares += std::pow(x[begin + j], 2);
    const double root = std::sqrt(squares / static_cast<double>(w.size()) + kEpsilon);
    for (std::size_t j = 0; j < w.size(); ++j) y[begin + j] = x[begin + j] / root * w[j];
  }
  return y;
}

struct NormCase {
  std::int64_t rows = *rc::gen::inRange(1, 8);
  std::int64_t cols = *rc::gen::inRange(1, 10);
  RandomValues random{*rc::gen::arbitrary<std::uint32_t>()};
  Values x = random(rows * cols);
  Values delta = random(rows * cols);
  Values weight = random(cols);
  Values rstd = Values(static_cast<std::size_t>(rows));
  Values sum = Values(x.size());
  Values normed = Values(x.size());

  void forward() {
    rms_norm_forward<double>({.rows = rows,
                              .cols = cols,
                              .epsilon = kEpsilon,
                              .residual = x.data(),
                              .delta = delta.data(),
                              .weight = weight.data(),
                              .residual_out = sum.data(),
                              .normed = normed.data(),
                              .rstd = rstd.data()});
  }
};

RC_GTEST_PROP(RmsNorm, ForwardIsTheFormula, ()) {
  NormCase c;
  c.forward();
  for (std::size_t i = 0; i < c.x.size(); ++i) RC_ASSERT(c.sum[i] == c.x[i] + c.delta[i]);
  RC_ASSERT(relative_error(c.normed, naive_norm(c.sum, c.weight)) < 1e-14);
}

/// The skip is added to the input before the norm.
RC_GTEST_PROP(RmsNorm, AddsToWhatItSkips, ()) {
  NormCase c;
  const Values skip = c.random(c.rows * c.cols);
  rms_norm_forward<double>({.rows = c.rows,
                            .cols = c.cols,
                            .epsilon = kEpsilon,
                            .residual = c.x.data(),
                            .weight = c.weight.data(),
                            .skip = skip.data(),
                            .normed = c.normed.data(),
                            .rstd = c.rstd.data()});
  Values expected = naive_norm(c.x, c.weight);
  for (std::size_t i = 0; i < skip.size(); ++i) expected[i] += skip[i];
  RC_ASSERT(relative_error(c.normed, expected) < 1e-13);
}

RC_GTEST_PROP(RmsNorm, BackwardIsTheForwardsDerivative, ()) {
  NormCase c;
  c.forward();
  const Values d_normed = c.random(c.rows * c.cols);
  const Values before = c.random(c.rows * c.cols);
  const bool adds = *rc::gen::arbitrary<bool>();
  const std::int64_t partial_rows = *rc::gen::inRange<std::int64_t>(1, c.rows + 1);
  Values partials(static_cast<std::size_t>(partial_rows * c.cols), 7.0);
  Values d_x = before;
  Values again = d_normed;  // read as the gradient, then written with the normed rows
  rms_norm_backward<double>({.rows = c.rows,
                             .cols = c.cols,
                             .partial_rows = partial_rows,
                             .d_normed = again.data(),
                             .input = c.sum.data(),
                             .rstd = c.rstd.data(),
                             .weight = c.weight.data(),
                             .adds = adds,
                             .d_residual = d_x.data(),
                             .normed = again.data(),
                             .partials = partials.data()});
  RC_ASSERT(again == c.normed);
  Values d_weight(static_cast<std::size_t>(c.cols));
  Values row(d_weight.size());
  column_sums(partial_rows, c.cols, partials.data(), row.data(), false, d_weight.data());
  const auto loss = [&] { return test::dot(naive_norm(c.sum, c.weight), d_normed); };
  Values expected = finite_differences(c.sum, loss);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += adds ? before[i] : 0;
  // With one column and a small weight the gradient all but vanishes: compare beside 1.
  Values padded = expected;
  padded.push_back(1);
  d_x.push_back(1);
  RC_ASSERT(relative_error(d_x, padded) < 1e-6);
  RC_ASSERT(relative_error(d_weight, finite_differences(c.weight, loss)) < 1e-6);
}

RC_GTEST_PROP(RmsNorm, BackwardMakesTheSameBitsAgain, (std::uint32_t seed)) {
  RandomValues random(seed);
  std::vector<Bf16> x;
  std::vector<Bf16> w;
  for (const double v : random(5 * 8)) x.push_back(narrow<Bf16>(static_cast<float>(v)));
  for (const double v : random(8)) w.push_back(narrow<Bf16>(static_cast<float>(v)));
  std::vector<Bf16> normed(x.size());
  std::vector<Bf16> again(x.size());
  std::vector<Bf16> d_residual(x.size());
  std::vector<float> rstd(5);
  std::vector<float> partials(8);
  rms_norm_forward<Bf16>({.rows = 5,
                          .cols = 8,
                          .epsilon = 1e-5F,
                          .residual = x.data(),
                          .weight = w.data(),
                          .normed = normed.data(),
                          .rstd = rstd.data()});
  rms_norm_backward<Bf16>({.rows = 5,
                           .cols = 8,
                           .partial_rows = 1,
                           .d_normed = x.data(),
                           .input = x.data(),
                           .rstd = rstd.data(),
                           .weight = w.data(),
                           .d_residual = d_residual.data(),
                           .normed = again.data(),
                           .partials = partials.data()});
  for (std::size_t i = 0; i < x.size(); ++i) RC_ASSERT(again[i].bits == normed[i].bits);
}

TEST(ColumnSums, AddToWhatIsThere) {
  const std::vector<float> in{1, 2, 3, 4, 5, 6};  // 3 rows of 2
  std::vector<float> row(2);
  std::vector<Bf16> out{narrow<Bf16>(10.0F), narrow<Bf16>(20.0F)};
  column_sums(3, 2, in.data(), row.data(), true, out.data());
  EXPECT_EQ(widen(out[0]), 10 + 1 + 3 + 5);
  EXPECT_EQ(widen(out[1]), 20 + 2 + 4 + 6);
}

}  // namespace
}  // namespace mfsdp::kernels
