#include "verify/cpu/kernels/swiglu.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/verify/cpu/kernels/gradients.hpp"

namespace mfsdp::kernels {
namespace {

using test::RandomValues;
using test::Values;

Values naive_swiglu(std::int64_t rows, std::int64_t cols, const Values& gate_up) {
  Values product;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      const double gate = gate_up[static_cast<std::size_t>(i * 2 * cols + j)];
      const double up = gate_up[static_cast<std::size_t>(i * 2 * cols + cols + j)];
      product.push_back(gate * (1 / (1 + std::exp(-gate))) * up);
    }
  return product;
}

RC_GTEST_PROP(Swiglu, ForwardAndBackward, (std::uint32_t seed, bool again)) {
  const std::int64_t rows = *rc::gen::inRange(1, 6);
  const std::int64_t cols = *rc::gen::inRange(1, 8);
  RandomValues random(seed);
  Values gate_up = random(rows * 2 * cols, 2);
  Values product(static_cast<std::size_t>(rows * cols));
  swiglu_forward(rows, cols, gate_up.data(), product.data());
  RC_ASSERT(test::relative_error(product, naive_swiglu(rows, cols, gate_up)) < 1e-14);

  const Values d_product = random(rows * cols);
  Values gradient = gate_up;
  Values in_place = d_product;
  if (again)
    swiglu_backward(rows, cols, gradient.data(), in_place.data());
  else
    swiglu_backward(rows, cols, gradient.data(), d_product.data());
  RC_ASSERT(in_place == (again ? product : d_product));
  const Values expected = test::finite_differences(
      gate_up, [&] { return test::dot(naive_swiglu(rows, cols, gate_up), d_product); });
  RC_ASSERT(test::relative_error(gradient, expected) < 1e-6);
}

TEST(Swiglu, SaturatesWithoutNaN) {
  const std::vector<float> gate_up{-200, 200, 1, 1};
  std::vector<float> product(2);
  swiglu_forward(1, 2, gate_up.data(), product.data());
  EXPECT_EQ(product[0], 0);
  EXPECT_EQ(product[1], 200);
}

}  // namespace
}  // namespace mfsdp::kernels
