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
}

TEST(Text, Utf8IsRecognised) {
  EXPECT_TRUE(is_utf8("\xf0\x9f\x90\xa2 ok"));
  EXPECT_FALSE(is_utf8("\xc0\xaf"));          // overlong
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));      // surrogate
  EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80"));  // above U+10FFFF
  EXPECT_FALSE(is_utf8("\xe2\x82"));          // cut
}

}  // namespace
}  // namespace mfsdp
