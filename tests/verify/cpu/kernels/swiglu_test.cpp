#include "verify/cpu/kernels/swiglu.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <type_traits>

#include "tests/verify/cpu/kernels/gradients.hpp"

namespace mfsdp::kernels {
namespace {

using test::RandomValues;
using test::Values;

/// x * sigmoid(x), and GELU by the tanh that its authors approximate the normal distribution with.
template <class Number>
Number activated(Silu /*gate*/, Number x) {
  return x * (1.0 / (1.0 + std::exp(-x)));
}
template <class Number>
Number activated(GeluTanh /*gate*/, Number x) {
  const double root = std::sqrt(2 / std::numbers::pi);
  return x / 2.0 * (1.0 + std::tanh(root * (x + 0.044715 * x * x * x)));
}

/// Its derivative, by a step into the complex plane: nothing is subtracted, so that no digit is
/// lost where it vanishes, as at the minimum of GELU (Squire and Trapp, SIAM Review 40, 1998).
template <class Gate>
double slope(double x) {
  const double step = 1e-30;
  return activated(Gate{}, std::complex<double>(x, step)).imag() / step;
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
  const Values expected = naive<Gate>(rows, cols, gate_up);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      const auto at = static_cast<std::size_t>(i * cols + j);
      const auto gate = static_cast<std::size_t>(i * 2 * cols + j);
      const double went_in = gate_up[gate] * gate_up[gate + static_cast<std::size_t>(cols)];
      // The naive 1 + tanh loses digits where it all but vanishes: so by what went in.
      const double size = std::is_same_v<Gate, GeluTanh> ? went_in : expected[at];
      RC_ASSERT(std::abs(product[at] - expected[at]) <= 1e-14 * std::abs(size));
    }

  const Values d_product = random(rows * cols);
  Values gradient = gate_up;
  Values in_place = d_product;
  if (again)
    gated_backward<Gate>(rows, cols, gradient.data(), in_place.data());
  else
    gated_backward<Gate>(rows, cols, gradient.data(), d_product.data());
  RC_ASSERT(in_place == (again ? product : d_product));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      const auto at = static_cast<std::size_t>(i * 2 * cols + j);
      const auto up = at + static_cast<std::size_t>(cols);
      const double d = d_product[static_cast<std::size_t>(i * cols + j)];
      const double scale = 1e-14 * std::abs(d) * (1 + std::abs(gate_up[at]));
      RC_ASSERT(std::abs(gradient[at] - d * gate_up[up] * slope<Gate>(gate_up[at])) <=
                scale * std::abs(gate_up[up]));
      RC_ASSERT(std::abs(gradient[up] - d * activated(Gate{}, gate_up[at])) <= scale);
    }
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
  for (std::size_t i = 0; i < x.size(); ++i)
    RC_ASSERT(std::abs(gradient[i] - d_product[i] * slope<GeluTanh>(x[i])) <=
              1e-14 * std::abs(d_product[i]) * (1 + std::abs(x[i])));
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
