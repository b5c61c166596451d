#include "core/base/amount.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

TEST(Amount, ReadsANumberAndAUnit) {
  EXPECT_EQ(parse_amount("48 GiB", kByteWords), std::int64_t{48} << 30);
  EXPECT_EQ(parse_amount("1.5GiB", kByteWords), 1610612736);
  EXPECT_EQ(parse_amount("820 ms", kTimeWords), 820'000'000);
  EXPECT_EQ(parse_amount("15T", kCountWords), 15'000'000'000'000);
  EXPECT_EQ(parse_amount("0.0005K", kCountWords), std::nullopt);  // half a token
}

TEST(Amount, LengthsArePowersOfTwo) {
  EXPECT_EQ(parse_amount("8k", kLengthWords), 8192);
  EXPECT_EQ(parse_amount("128K", kLengthWords), 131072);
  EXPECT_EQ(parse_amount("1M", kLengthWords), 1048576);
  EXPECT_EQ(parse_amount("8kB", kLengthWords), std::nullopt);
}

TEST(Amount, CountsArePowersOfTen) {
  EXPECT_EQ(parse_count("15T"), 15'000'000'000'000);
  EXPECT_EQ(parse_count("300b"), 300'000'000'000);
  EXPECT_EQ(parse_count("1e12"), 1'000'000'000'000);
  EXPECT_EQ(parse_count("1.5E9"), 1'500'000'000);
  EXPECT_EQ(parse_count("1000000"), 1'000'000);
  for (const char* wrong : {"", "-1", "1e-3", "0.5", "1e30", "many", "1 e9", "15TB"})
    EXPECT_EQ(parse_count(wrong), std::nullopt) << wrong;
}

TEST(Amount, RoundsUpWhereItIsAskedTo) {
  EXPECT_EQ(parse_amount("79.06 GiB", kByteWords), std::nullopt);
  EXPECT_EQ(parse_amount_up("79.06 GiB", kByteWords), 84890028606);  // 84890028605.44
  EXPECT_EQ(parse_amount_up("2 GiB", kByteWords), std::int64_t{2} << 30);
}

TEST(Amount, RefusesWhatIsNoAmount) {
  for (const char* text : {"", "GiB", "48", "48  GiB", "-1 GiB", "48 gib", "1.5.2 GiB", "1e3 B",
                           "48 GiB ", "9223372036854775808 B", "99999999999 TiB"})
    EXPECT_EQ(parse_amount(text, kByteWords), std::nullopt) << text;
}

}  // namespace
}  // namespace mfsdp
