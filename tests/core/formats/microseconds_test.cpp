#include <gtest/gtest.h>

#include <limits>

#include "core/formats/kineto.hpp"

namespace mfsdp::traces {
namespace {

TEST(ParseMicroseconds, KeepsNanosecondsExactly) {
  EXPECT_EQ(parse_microseconds("1234.567"), Nanos(1'234'567));
  EXPECT_EQ(parse_microseconds("0"), Nanos(0));
  EXPECT_EQ(parse_microseconds("7"), Nanos(7'000));
  EXPECT_EQ(parse_microseconds("-0.25"), Nanos(-250));
  // A double holds 53 bits; this time since 1970 in nanoseconds needs 61.
  EXPECT_EQ(parse_microseconds("1730000000123456.789"), Nanos(1'730'000'000'123'456'789));
}

TEST(ParseMicroseconds, RoundsFurtherDigitsToTheNearest) {
  EXPECT_EQ(parse_microseconds("0.0004"), Nanos(0));
  EXPECT_EQ(parse_microseconds("0.0005"), Nanos(1));
  EXPECT_EQ(parse_microseconds("1.23449999999999999999"), Nanos(1'234));
  EXPECT_EQ(parse_microseconds("1.2345"), Nanos(1'235));
}

TEST(ParseMicroseconds, TakesPowersOfTen) {
  EXPECT_EQ(parse_microseconds("1.5e6"), Nanos(1'500'000'000));
  EXPECT_EQ(parse_microseconds("1500E-3"), Nanos(1'500));
  EXPECT_EQ(parse_microseconds("5e-4"), Nanos(1));  // 0.5 ns
}

TEST(ParseMicroseconds, RefusesWhatIsNoTime) {
  for (const char* text : {"", "-", ".", "1.2.3", "1e", "e5", "1e400", "9e18", "nan", "1x",
                           "99999999999999999999999", "2305843009213694.0"})
    EXPECT_EQ(parse_microseconds(text), std::nullopt) << text;
}

}  // namespace
}  // namespace mfsdp::traces
