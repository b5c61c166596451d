#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "sim/simulator/jitter.hpp"
#include "sim/simulator/prices.hpp"

namespace mfsdp {
namespace {

TEST(Jitter, IsTheSameOnEveryMachine) {
  // The same steps written in Python, with integers of any size masked to 64 bits.
  EXPECT_EQ(standard_deviate(0, 0, {}), 41671);
  EXPECT_EQ(standard_deviate(1, 2, {.step = 1, .segment = 3, .instance = 4, .op = 5}), 6757);
  EXPECT_EQ(standard_deviate(~std::uint64_t{0}, 511,
                             {.step = 2, .segment = 0, .instance = 255, .op = 1000}),
            -3127);
}

TEST(Jitter, HasMeanZeroAndDeviationOne) {
  constexpr int kernels = 200;
  constexpr int ranks = 500;
  double sum = 0;
  double squares = 0;
  double beyond_one = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    for (std::uint32_t op = 0; op < kernels; ++op) {
      const double z = static_cast<double>(standard_deviate(7, rank, {.op = op})) / 65536;
      EXPECT_LT(std::abs(z), 6);
      sum += z;
      squares += z * z;
      beyond_one += std::abs(z) > 1 ? 1 : 0;
    }
  // Of 100,000 draws: the mean's deviation is 0.0032, that of the variance 0.0044 (kurtosis 2.9),
  // that of the share 0.0015. A sum of twelve uniform numbers has 0.3215 beyond one deviation,
  // where the normal distribution has 0.3173.
  constexpr double n = static_cast<double>(kernels) * ranks;
  EXPECT_NEAR(sum / n, 0, 4 * 0.0032);
  EXPECT_NEAR(squares / n, 1, 4 * 0.0044);
  EXPECT_NEAR(beyond_one / n, 0.3215, 4 * 0.0015);
}

TEST(Jitter, DependsOnEveryPartOfItsKey) {
  const KernelInstance kernel{.step = 1, .segment = 1, .instance = 1, .op = 1};
  std::set<std::int64_t> values{standard_deviate(1, 1, kernel)};
  values.insert(standard_deviate(2, 1, kernel));
  values.insert(standard_deviate(1, 2, kernel));
  for (auto change : {0, 1, 2, 3}) {
    KernelInstance other = kernel;
    if (change == 0) other.step = 2;
    if (change == 1) other.segment = 2;
    if (change == 2) other.instance = 2;
    if (change == 3) other.op = 2;
    values.insert(standard_deviate(1, 1, other));
  }
  EXPECT_EQ(values.size(), 7U);
}

TEST(Jitter, ScalesTheFactorAndStaysAboveZero) {
  const std::int64_t z = standard_deviate(0, 0, {});
  // 1 + 1/4 * z of 2^16, times 2.
  const KernelTimes quarter{.rank = 0, .factor = 2 * kOne, .jitter = kOne / 4, .seed = 0};
  EXPECT_EQ(quarter.of({}), 2 * (kOne + kOne / 4 * z / 65536));
  const KernelTimes none{.rank = 0, .factor = 2 * kOne, .jitter = 0, .seed = 0};
  EXPECT_EQ(none.of({}), 2 * kOne);
  const KernelTimes wild{.rank = 0, .factor = kOne, .jitter = kOne, .seed = 3};
  int stopped = 0;
  for (std::uint32_t op = 0; op < 1000; ++op) {
    EXPECT_GE(wild.of({.op = op}), 0);
    stopped += wild.of({.op = op}) == 0 ? 1 : 0;
  }
  EXPECT_GT(stopped, 0);  // 16 % of draws lie below -1
}

}  // namespace
}  // namespace mfsdp
