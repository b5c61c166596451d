#include "core/cli/format.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "core/base/text.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

TEST(Format, CountsHaveThousandsSeparators) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Format, RealsRoundAndKeepTheirSign) {
  EXPECT_EQ(format_real(13421.55, 1), "13,421.5");  // 13421.55 is below the tie in binary
  EXPECT_EQ(format_real(-0.04, 1), "0.0");
  EXPECT_EQ(format_real(-1234.0, 0), "-1,234");
  EXPECT_EQ(format_real(std::numeric_limits<double>::quiet_NaN(), 1), "n/a");
  EXPECT_EQ(format_real(std::numeric_limits<double>::infinity(), 1), "n/a");
}

TEST(Format, ParametersUseTheFieldsLetters) {
  EXPECT_EQ(format_parameters(512), "512");
  EXPECT_EQ(format_parameters(46'240), "46.2 k");
  EXPECT_EQ(format_parameters(494'032'768), "494.03 M");
  EXPECT_EQ(format_parameters(999'999'999), "1.00 B");
  EXPECT_EQ(format_parameters(8'030'261'248), "8.03 B");
  EXPECT_EQ(format_parameters(405'853'388'800), "405.85 B");
}

TEST(Format, MemoryIsBinary) {
  EXPECT_EQ(format_gib(Bytes(gib)), "1.00");
  EXPECT_EQ(format_gib(Bytes(85'899'345'920)), "80.00");  // 80 * 2^30
  EXPECT_EQ(format_gib(Bytes(1)), "<0.01");
  EXPECT_EQ(format_gib(Bytes(0)), "0.00");
  EXPECT_EQ(format_bytes(Bytes(1023)), "1,023 B");
  EXPECT_EQ(format_bytes(Bytes(1536)), "1.50 KiB");
  EXPECT_EQ(format_bytes(Bytes(218'136'576 * 2)), "416.06 MiB");  // 436273152 / 2^20
  EXPECT_EQ(format_bytes(Bytes(-3 * gib)), "-3.00 GiB");
}

TEST(Format, DurationsTakeTheUnitThatFits) {
  EXPECT_EQ(format_duration(Nanos(0)), "0 ns");
  EXPECT_EQ(format_duration(Nanos(999)), "999 ns");
  EXPECT_EQ(format_duration(Nanos(12'345)), "12.35 us");  // 12.345 is above the tie in binary
  EXPECT_EQ(format_duration(Nanos(999'999)), "1.00 ms");
  EXPECT_EQ(format_duration(Nanos(872'412'345)), "872.41 ms");
  EXPECT_EQ(format_duration(Nanos(1'234'000'000)), "1.234 s");
  EXPECT_EQ(format_duration(Nanos(-1500)), "-1.50 us");
  EXPECT_EQ(format_percent(0.9312), "93.1 %");
}

TEST(Format, QuotedTextIsCut) {
  EXPECT_EQ(in_quotes(std::string(200, 'x')), "'" + std::string(200, 'x') + "'");
  EXPECT_EQ(in_quotes(std::string(1000, 'x')),
            "'" + std::string(197, 'x') + "...' (1,000 characters)");
}

TEST(Format, CuttingKeepsWholeCharacters) {
  EXPECT_EQ(cut_to_width("abcdef", 6), "abcdef");
  EXPECT_EQ(cut_to_width("abcdefg", 6), "abc...");
  EXPECT_EQ(cut_to_width("\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc", 4), "\xc3\xbc...");
  EXPECT_EQ(cut_to_width("abcdef", 2), "..");
}

RC_GTEST_PROP(Format, CutTextIsValidAndFits, (std::string text)) {
  const auto width = *rc::gen::inRange<std::size_t>(3, 40);
  const std::string shown = cut_to_width(printable(text), width);
  RC_ASSERT(is_utf8(shown));
  RC_ASSERT(display_width(shown) <= width);
  RC_ASSERT(shown.find('\n') == std::string::npos);
}

TEST(Format, RatesKeepThreeDigits) {
  EXPECT_EQ(format_rate(8192), "8,192");
  EXPECT_EQ(format_rate(123.4), "123");
  EXPECT_EQ(format_rate(99.96), "100");
  EXPECT_EQ(format_rate(42.51), "42.5");
  EXPECT_EQ(format_rate(3.14159), "3.14");
  EXPECT_EQ(format_rate(0.0125), "0.0125");
  EXPECT_EQ(format_rate(0), "0");
}

}  // namespace
}  // namespace mfsdp
