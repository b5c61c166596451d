#include "core/base/text.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

TEST(Text, TextOfUsersStaysOnOneLineAndCannotSteerTheTerminal) {
  EXPECT_EQ(printable("a\nb\tc\x1b[31m"), "a\\nb\\tc\\x1b[31m");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\x9b");  // U+009B, a control sequence introducer
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(printable("\xff\xc3"), "??");
  EXPECT_EQ(printable("a\u202Etxt.exe"), "a\\u202etxt.exe");  // reverses the text after it
  EXPECT_EQ(printable("a\u200Bb\uFEFF\u2066\u2028"), "a\\u200bb\\ufeff\\u2066\\u2028");
  EXPECT_EQ(printable("\U000E0041"), "\\ue0041");
  EXPECT_EQ(printable("\u05D0\u05D1 \u2026 \u65E5 \U0001F600"),
            "\u05D0\u05D1 \u2026 \u65E5 \U0001F600");
}

TEST(Text, Utf8IsRecognised) {
  EXPECT_TRUE(is_utf8("\xf0\x9f\x90\xa2 ok"));
  EXPECT_FALSE(is_utf8("\xc0\xaf"));          // overlong
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));      // surrogate
  EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80"));  // above U+10FFFF
  EXPECT_FALSE(is_utf8("\xe2\x82"));          // cut
}

TEST(Text, OnlyAsciiCapitalsBecomeSmall) {
  EXPECT_EQ(lower_case("UTF-8 Zero_3 @[`{"), "utf-8 zero_3 @[`{");
  EXPECT_EQ(lower_case("\xc3\x84"), "\xc3\x84");  // a capital, but not of ASCII
}

TEST(Text, NamesLoseWhatSeparatesTheirWords) {
  EXPECT_EQ(joined_words("ZeRO-3", "-_"), "zero3");
  EXPECT_EQ(joined_words("zero_3", "-_"), "zero3");
  EXPECT_EQ(joined_words("Llama-3.1 8B", "-_"), "llama3.1 8b");
  EXPECT_EQ(joined_words("--", "-"), "");
}

}  // namespace
}  // namespace mfsdp
