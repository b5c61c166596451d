#include "verify/cpu/kernels/swiglu.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numbers>
#include <type_traits>

#include "tests/verify/cpu/kernels/gradients.hpp"

namespace mfsdp::kernels {
namespace {

using test::RandomValues;
using test::Values;

/// x * sigmoid(x), and GELU by the tanh that its authors approximate the normal distribution with.
double activated(Silu /*gate*/, double x) { return x * (1 / (1 + std::exp(-x))); }
double activated(GeluTanh /*gate*/, double x) {
  const double root = std::sqrt(2 / std::numbers::pi);
  return x / 2 * (1 + std::tanh(root * (x + 0.044715 * x * x * x)));
}

template <class Gate>
Values naive(std::int64_t rows, std::int64_t cols, const Values& gate_up) {
  Values product;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      const double gate = gate_up[static_cast<std::size_t>(i * 2 * cols + j)];
      const double up = gate_up[static_cast<std::size_t>(i * 2 * cols + cols + j)];
      product.push_back(activated(Gate{}, gate) * up);
    }
  return product;
}

template <class Gate>
void check_gated(std::uint32_t seed, bool again) {
  const std::int64_t rows = *rc::gen::inRange(1, 6);
  const std::int64_t cols = *rc::gen::inRange(1, 8);
  RandomValues random(seed);
  Values gate_up = random(rows * 2 * cols, 2);
  Values product(static_cast<std::size_t>(rows * cols));
  gated_forward<Gate>(rows, cols, gate_up.data(), product.data());
  // The naive 1 + tanh loses digits where it all but vanishes.
  const double bound = std::is_same_v<Gate, GeluTanh> ? 1e-9 : 1e-14;
  RC_ASSERT(test::relative_error(product, naive<Gate>(rows, cols, gate_up)) < bound);

  const Values d_product = random(rows * cols);
  Values gradient = gate_up;
  Values in_place = d_product;
  if (again)
    gated_backward<Gate>(rows, cols, gradient.data(), in_place.data());
  else
    gated_backward<Gate>(rows, cols, gradient.data(), d_product.data());
  RC_ASSERT(in_place == (again ? product : d_product));
  const Values expected = test::finite_differences(
      gate_up, [&] { return test::dot(naive<Gate>(rows, cols, gate_up), d_product); });
  RC_ASSERT(test::relative_error(gradient, expected) < 1e-6);
}

RC_GTEST_PROP(Swiglu, ForwardAndBackward, (std::uint32_t seed, bool again)) {
  check_gated<Silu>(seed, again);
}
RC_GTEST_PROP(Geglu, ForwardAndBackward, (std::uint32_t seed, bool again)) {
  check_gated<GeluTanh>(seed, again);
}

RC_GTEST_PROP(Gelu, ForwardAndBackward, (std::uint32_t seed, bool again)) {
  const std::int64_t count = *rc::gen::inRange(1, 40);
  RandomValues random(seed);
  Values x = random(count, 2);
  const auto naive_gelu = [&] {
    Values product;
    for (const double value : x) product.push_back(activated(GeluTanh{}, value));
    return product;
  };
  Values product(x.size());
  gelu_forward(count, x.data(), product.data());
  // The naive 1 + tanh loses digits where it all but vanishes: so by what went in.
  const Values naive = naive_gelu();
  for (std::size_t i = 0; i < x.size(); ++i)
    RC_ASSERT(std::abs(product[i] - naive[i]) <= 1e-14 * std::abs(x[i]));
  const Values d_product = random(count);
  Values gradient = x;
  Values in_place = d_product;
  if (again)
    gelu_backward(count, gradient.data(), in_place.data());
  else
    gelu_backward(count, gradient.data(), d_product.data());
  RC_ASSERT(in_place == (again ? product : d_product));
  const Values expected =
      test::finite_differences(x, [&] { return test::dot(naive_gelu(), d_product); });
  RC_ASSERT(test::relative_error(gradient, expected) < 1e-6);
}

/// The tanh form is within 5e-4 of GELU itself (Hendrycks and Gimpel, section 2).
TEST(Geglu, IsNearTheNormalDistribution) {
  for (double x = -6; x < 6; x += 0.125) {
    const std::vector<double> gate_up{x, 1};
    std::vector<double> product(1);
    gated_forward<GeluTanh>(1, 1, gate_up.data(), product.data());
    EXPECT_NEAR(product[0], x * std::erfc(-x / std::numbers::sqrt2) / 2, 5e-4) << x;
  }
}

TEST(Swiglu, SaturatesWithoutNaN) {
  const std::vector<float> gate_up{-200, 200, 1, 1};
  std::vector<float> product(2);
  gated_forward<Silu>(1, 2, gate_up.data(), product.data());
  EXPECT_EQ(product[0], 0);
  EXPECT_EQ(product[1], 200);
  gated_forward<GeluTanh>(1, 2, gate_up.data(), product.data());
  EXPECT_EQ(product[0], 0);
  EXPECT_EQ(product[1], 200);
}

}  // namespace
}  // namespace mfsdp::kernels
