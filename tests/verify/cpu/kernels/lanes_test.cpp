#include "verify/cpu/kernels/lanes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace mfsdp {
namespace {

// Sums of integers are exact in any order: each element must count once.
TEST(Lanes, SumEveryElementOnce) {
  for (const std::int64_t count : {0, 1, 7, 15, 16, 17, 31, 32, 100})
    EXPECT_EQ(sum_lanes<float>(count, [](std::int64_t i) { return static_cast<float>(i + 1); }),
              static_cast<float>(count * (count + 1) / 2));
}

// 2^24 + 1 is no float: it rounds to 2^24. In index order all fifteen ones would vanish so.
TEST(Lanes, OrderIsByLaneThenInHalves) {
  EXPECT_EQ(sum_lanes<float>(16, [](std::int64_t i) { return i == 0 ? 0x1p24F : 1.0F; }),
            0x1p24F + 14);  // lane 0 takes 1, which vanishes, then the folded 2, 4 and 8
}

TEST(Lanes, LargestOfAnyPlace) {
  for (std::int64_t count = 1; count < 40; ++count)
    for (std::int64_t place = 0; place < count; ++place)
      EXPECT_EQ(
          max_lanes<float>(count, [place](std::int64_t i) { return i == place ? -1.0F : -2.0F; }),
          -1);
  EXPECT_EQ(
      max_lanes<float>(3, [](std::int64_t) { return -std::numeric_limits<float>::infinity(); }),
      -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace mfsdp
