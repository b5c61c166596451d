#include "gpu_backend/cuda/kernels/exact_outlier.hpp"

#include <gtest/gtest.h>

namespace mfsdp::cuda {
namespace {

TEST(ExactOutlier, NoFaultIsNoError) { EXPECT_TRUE(check_exact({})); }

TEST(ExactOutlier, TheErrorNamesTheKernelAndWhatWasExpected) {
  const auto message = [](ExactFault fault) {
    const auto outcome = check_exact({.fault = fault,
                                      .kernel = KernelKind::accumulate,
                                      .value = 4100.5F,
                                      .limit = 4096,
                                      .exponent = -1});
    return outcome ? std::string() : outcome.error().message();
  };
  EXPECT_EQ(message(ExactFault::sum),
            "kernel accumulate: --exact-sums expects sums of at most 4096 in magnitude, so that "
            "none over all ranks leaves 24 bits above 2^-1; got 4100.5");
  EXPECT_EQ(message(ExactFault::gradient),
            "kernel accumulate: --exact-sums expects multiples of 2^-1 within 24 bits, got 4100.5");
  EXPECT_EQ(message(ExactFault::squares),
            "kernel accumulate: --exact-sums expects sums of squares that keep to 63 bits");
}

}  // namespace
}  // namespace mfsdp::cuda
