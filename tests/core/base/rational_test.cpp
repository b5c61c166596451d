#include "core/base/rational.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace mfsdp {
namespace {

TEST(Rational, IsInLowestTerms) {
  EXPECT_EQ(make_rational(6, 4).value(), (Rational{3, 2}));
  EXPECT_EQ(make_rational(-6, 4).value(), (Rational{-3, 2}));
  EXPECT_FALSE(make_rational(1, 0));
}

TEST(Rational, HasNoNumeratorWithoutAnOpposite) {
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  EXPECT_FALSE(make_rational(kLowest, 1));
  EXPECT_TRUE(make_rational(kLowest + 1, 1));
  EXPECT_FALSE(parse_rational("9223372036854775808", "number"));
}

TEST(Rational, SomeAreADecimalNumber) {
  EXPECT_EQ(exact_double({1, 100000}), 1e-5);
  EXPECT_EQ(exact_double({3, 1}), 3.0);
  EXPECT_EQ(exact_double({1, 3}), std::nullopt);
}

}  // namespace
}  // namespace mfsdp
