#include "verify/cpu/kernels/layer_norm.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/verify/cpu/kernels/gradients.hpp"
#include "verify/cpu/kernels/norm.hpp"

namespace mfsdp::kernels {
namespace {

using test::finite_differences;
using test::kEpsilon;
using test::RandomValues;
using test::relative_error;
using test::Values;

/// y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) * w + b, row by row.
Values naive_norm(const Values& x, const Values& w, const Values& b) {
  Values y(x.size());
  const auto cols = static_cast<double>(w.size());
  for (std::size_t begin = 0; begin < x.size(); begin += w.size()) {
    double mean = 0;
    for (std::size_t j = 0; j < w.size(); ++j) mean += x[begin + j] / cols;
    double variance = 0;
    for (std::size_t j = 0; j < w.size(); ++j) variance += std::pow(x[begin + j] - mean, 2) / cols;
    for (std::size_t j = 0; j < w.size(); ++j)
      y[begin + j] = (x[begin + j] - mean) / std::sqrt(variance + kEpsilon) * w[j] + b[j];
  }
  return y;
}

RC_GTEST_PROP(LayerNorm, ForwardIsTheFormulaAndBackwardItsDerivative, (std::uint32_t seed)) {
  const std::int64_t rows = *rc::gen::inRange(1, 8);
  const std::int64_t cols = *rc::gen::inRange(2, 10);  // a row of one is all mean
  const std::int64_t partial_rows = *rc::gen::inRange<std::int64_t>(1, rows + 1);
  const bool adds = *rc::gen::arbitrary<bool>();
  RandomValues random(seed);
  const Values x = random(rows * cols);
  const Values delta = random(rows * cols);
  Values weight = random(cols);
  Values bias = random(cols);
  Values sum(x.size());
  Values normed(x.size());
  Values mean(static_cast<std::size_t>(rows));
  Values rstd(mean.size());
  layer_norm_forward<double>({.rows = rows,
                              .cols = cols,
                              .epsilon = kEpsilon,
                              .residual = x.data(),
                              .delta = delta.data(),
                              .weight = weight.data(),
                              .bias = bias.data(),
                              .residual_out = sum.data(),
                              .normed = normed.data(),
                              .mean = mean.data(),
                              .rstd = rstd.data()});
  for (std::size_t i = 0; i < x.size(); ++i) RC_ASSERT(sum[i] == x[i] + delta[i]);
  RC_ASSERT(relative_error(normed, naive_norm(sum, weight, bias)) < 1e-13);

  const Values d_normed = random(rows * cols);
  const Values before = random(rows * cols);
  Values d_x = before;
  Values again = d_normed;  // read as the gradient, then written with the normed rows
  const std::int64_t half = partial_rows * cols;
  Values partials(static_cast<std::size_t>(2 * half), 7.0);
  layer_norm_backward<double>({.rows = rows,
                               .cols = cols,
                               .partial_rows = partial_rows,
                               .d_normed = again.data(),
                               .input = sum.data(),
                               .mean = mean.data(),
                               .rstd = rstd.data(),
                               .weight = weight.data(),
                               .bias = bias.data(),
                               .adds = adds,
                               .d_residual = d_x.data(),
                               .normed = again.data(),
                               .partials = partials.data()});
  RC_ASSERT(again == normed);
  const auto loss = [&] { return test::dot(naive_norm(sum, weight, bias), d_normed); };
  Values row(weight.size());
  const auto sums = [&](std::int64_t begin) {
    Values made(weight.size());
    column_sums(partial_rows, cols, partials.data() + begin, row.data(), false, made.data());
    return made;
  };
  RC_ASSERT(relative_error(sums(0), finite_differences(weight, loss)) < 1e-6);
  RC_ASSERT(relative_error(sums(half), finite_differences(bias, loss)) < 1e-6);
  Values expected = finite_differences(sum, loss);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += adds ? before[i] : 0;
  expected.push_back(1);  // beside which a gradient that all but vanishes is compared
  d_x.push_back(1);
  RC_ASSERT(relative_error(d_x, expected) < 1e-6);
}

RC_GTEST_PROP(LayerNorm, BackwardMakesTheSameBitsAgain, (std::uint32_t seed)) {
  RandomValues random(seed);
  const auto narrowed = [&](std::int64_t count) {
    std::vector<Bf16> values;
    for (const double v : random(count)) values.push_back(narrow<Bf16>(static_cast<float>(v)));
    return values;
  };
  const auto x = narrowed(5 * 8);
  const auto w = narrowed(8);
  const auto b = narrowed(8);
  std::vector<Bf16> normed(x.size()), again(x.size()), d_residual(x.size());
  std::vector<float> mean(5), rstd(5), partials(16);
  layer_norm_forward<Bf16>({.rows = 5,
                            .cols = 8,
                            .epsilon = 1e-5F,
                            .residual = x.data(),
                            .weight = w.data(),
                            .bias = b.data(),
                            .normed = normed.data(),
                            .mean = mean.data(),
                            .rstd = rstd.data()});
  layer_norm_backward<Bf16>({.rows = 5,
                             .cols = 8,
                             .partial_rows = 1,
                             .d_normed = x.data(),
                             .input = x.data(),
                             .mean = mean.data(),
                             .rstd = rstd.data(),
                             .weight = w.data(),
                             .bias = b.data(),
                             .d_residual = d_residual.data(),
                             .normed = again.data(),
                             .partials = partials.data()});
  for (std::size_t i = 0; i < x.size(); ++i) RC_ASSERT(normed[i].bits == again[i].bits);
}

}  // namespace
}  // namespace mfsdp::kernels
