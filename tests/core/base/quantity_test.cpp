#include "core/base/quantity.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace mfsdp {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(Quantity, SumsAndProductsThatLeave63BitsThrow) {
  EXPECT_EQ(checked_add(kMost, 0), kMost);
  EXPECT_THROW((void)checked_add(kMost, 1), OverflowError);
  EXPECT_THROW((void)checked_sub(-2, kMost), OverflowError);
  EXPECT_EQ(checked_mul(std::int64_t{1} << 31, std::int64_t{1} << 31), std::int64_t{1} << 62);
  EXPECT_THROW((void)checked_mul(std::int64_t{1} << 32, std::int64_t{1} << 31), OverflowError);
  EXPECT_THROW((void)(Bytes(kMost) + Bytes(1)), OverflowError);
  EXPECT_THROW((void)round_up(kMost, 256), OverflowError);
}

TEST(Quantity, NarrowingKeepsTheValueOrThrows) {
  EXPECT_EQ(checked_narrow(static_cast<Int128>(kMost)), kMost);
  EXPECT_EQ(checked_narrow(-static_cast<Int128>(kMost) - 1), -kMost - 1);
  EXPECT_THROW((void)checked_narrow(static_cast<Int128>(kMost) + 1), OverflowError);
  EXPECT_THROW((void)checked_narrow(static_cast<Int128>(kMost) * kMost), OverflowError);
}

TEST(Quantity, AShapeHasTheProductOfItsDims) {
  EXPECT_EQ(product_of(std::vector<std::int64_t>{2, 3, 4}), 24);
  EXPECT_EQ(product_of(std::vector<std::int64_t>{}), 1);
  EXPECT_EQ(product_of(std::vector<std::int64_t>{5, 0}), 0);
  EXPECT_THROW((void)product_of(std::vector<std::int64_t>{kMost, 2}), OverflowError);
}

TEST(Quantity, QuotientsRoundUp) {
  EXPECT_EQ(ceil_div(0, 8), 0);
  EXPECT_EQ(ceil_div(9, 8), 2);
  EXPECT_EQ(ceil_div(kMost, 2), kMost / 2 + 1);  // kMost is odd
  EXPECT_EQ(round_up(257, 256), 512);
  EXPECT_EQ(round_up(512, 256), 512);
}

}  // namespace
}  // namespace mfsdp
