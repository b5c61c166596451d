#include "reports/html/packed.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string_view>
#include <vector>

namespace mfsdp {
namespace {

/// As unpack() of page/base.js reads it.
std::vector<std::int64_t> unpack(std::string_view text, bool differences) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::vector<std::int64_t> numbers;
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < text.size();) {
    std::uint64_t digit = digits.find(text[i++]);
    const bool negative = (digit & 1) == 1;
    std::uint64_t value = (digit & 31) >> 1;
    for (int bits = 4; (digit & 32) != 0; bits += 5) {
      digit = digits.find(text[i++]);
      value |= (digit & 31) << bits;
    }
    if (negative) value = 0 - value;
    if (differences) value = before += value;
    numbers.push_back(static_cast<std::int64_t>(value));
  }
  return numbers;
}

TEST(Packed, SmallNumbersTakeOneCharacter) {
  // Twice the number, one more for the sign: 0, 1, -1, 15, -15, and 16 = 0 + 16 * 1.
  EXPECT_EQ(pack(std::vector<std::int64_t>{0, 1, -1, 15, -15}), "ACDef");
  EXPECT_EQ(pack(std::vector<std::int64_t>{16}), "gB");
  EXPECT_EQ(pack_differences(std::vector<std::int64_t>{100, 101, 100}), "oGCD");
}

TEST(Packed, LimitsComeBack) {
  const std::vector<std::int64_t> numbers{std::numeric_limits<std::int64_t>::min(),
                                          std::numeric_limits<std::int64_t>::max(), 0, -1,
                                          std::int64_t{1} << 53};
  EXPECT_EQ(unpack(pack(numbers), false), numbers);
  EXPECT_EQ(unpack(pack_differences(numbers), true), numbers);
}

RC_GTEST_PROP(Packed, EveryListComesBack, (const std::vector<std::int64_t>& numbers)) {
  RC_ASSERT(unpack(pack(numbers), false) == numbers);
  RC_ASSERT(unpack(pack_differences(numbers), true) == numbers);
}

}  // namespace
}  // namespace mfsdp
