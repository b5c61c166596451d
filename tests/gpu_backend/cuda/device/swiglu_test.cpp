#include "verify/cpu/kernels/swiglu.hpp"

#include <gtest/gtest.h>

#include "gpu_backend/cuda/kernels/swiglu.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"

namespace mfsdp::cuda {
namespace {

template <class T>
class DeviceSwiglu : public testing::Test {};
using Elements = testing::Types<Bf16, Fp16, float>;
TYPED_TEST_SUITE(DeviceSwiglu, Elements);

template <class Gate, class T>
void check_gated(const auto& forward, const auto& backward) {
  struct Shape {
    std::int64_t rows, cols;
  };
  for (const auto [rows, cols] : {Shape{1, 1}, {3, 8}, {5, 1000}, {7, 333}, {66000, 8}}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << cols);
    const auto gate_up = random_values<T>(rows * 2 * cols, 1, 4);
    const auto d = random_values<T>(rows * cols, 2);
    const DeviceArray<T> forward_in(gate_up), product(rows * cols);
    expect_runs(forward(
        kernels::SwigluForward<T>{
            .rows = rows, .cols = cols, .gate_up = forward_in.data(), .product = product.data()},
        nullptr));
    auto gradient = widened(gate_up);
    std::vector<double> expected(d.size());
    kernels::gated_forward<Gate>(rows, cols, gradient.data(), expected.data());
    EXPECT_LT(relative_error(product.download(), expected), kTolerance<T>);
    EXPECT_TRUE(product.margin_is_whole());

    const auto wide_d = widened(d);
    kernels::gated_backward<Gate>(rows, cols, gradient.data(), wide_d.data());
    for (const bool makes_product : {false, true}) {
      const DeviceArray<T> in_place(gate_up), d_product(d);
      expect_runs(backward(
          kernels::SwigluBackward<T>{.rows = rows,
                                     .cols = cols,
                                     .gate_up = in_place.data(),
                                     .d_product = d_product.data(),
                                     .product = makes_product ? d_product.data() : nullptr},
          nullptr));
      EXPECT_LT(relative_error(in_place.download(), gradient), kTolerance<T>);
      EXPECT_TRUE(same_bits(d_product.download(), makes_product ? product.download() : d));
      EXPECT_TRUE(in_place.margin_is_whole());
    }
  }
}

TYPED_TEST(DeviceSwiglu, BackwardMakesTheVeryProductAgain) {
  check_gated<kernels::Silu, TypeParam>(
      [](const auto& k, cudaStream_t stream) { return swiglu_forward(k, stream); },
      [](const auto& k, cudaStream_t stream) { return swiglu_backward(k, stream); });
}
TYPED_TEST(DeviceSwiglu, AndOfGeglu) {
  check_gated<kernels::GeluTanh, TypeParam>(geglu_forward<TypeParam>, geglu_backward<TypeParam>);
}

TYPED_TEST(DeviceSwiglu, AndOfGeluWithoutAGate) {
  using T = TypeParam;
  for (const std::int64_t cols : {1, 8, 333, 100'000}) {
    SCOPED_TRACE(cols);
    constexpr std::int64_t rows = 3;
    const auto x = random_values<T>(rows * cols, 1, 4);
    const auto d = random_values<T>(rows * cols, 2);
    const DeviceArray<T> d_x(x), product(rows * cols);
    expect_runs(gelu_forward(
        kernels::GeluForward<T>{
            .rows = rows, .cols = cols, .input = d_x.data(), .product = product.data()},
        nullptr));
    auto gradient = widened(x);
    std::vector<double> expected(x.size());
    kernels::gelu_forward(rows * cols, gradient.data(), expected.data());
    EXPECT_LT(relative_error(product.download(), expected), kTolerance<T>);
    const auto wide_d = widened(d);
    kernels::gelu_backward(rows * cols, gradient.data(), wide_d.data());
    for (const bool makes_product : {false, true}) {
      const DeviceArray<T> in_place(x), d_product(d);
      expect_runs(gelu_backward(
          kernels::GeluBackward<T>{.rows = rows,
                                   .cols = cols,
                                   .input = in_place.data(),
                                   .d_product = d_product.data(),
                                   .product = makes_product ? d_product.data() : nullptr},
          nullptr));
      EXPECT_LT(relative_error(in_place.download(), gradient), kTolerance<T>);
      EXPECT_TRUE(same_bits(d_product.download(), makes_product ? product.download() : d));
      EXPECT_TRUE(in_place.margin_is_whole() && product.margin_is_whole());
    }
  }
}

}  // namespace
}  // namespace mfsdp::cuda
