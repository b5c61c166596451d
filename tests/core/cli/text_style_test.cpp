#include "core/cli/text_style.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace mfsdp {
namespace {

TEST(TextStyle, ColourNeedsAWillingTerminal) {
  const Terminal terminal{.is_tty = true, .no_colour = false, .term = "xterm", .locale = "C"};
  EXPECT_TRUE(style_of(terminal).colour);
  Terminal piped = terminal;
  piped.is_tty = false;
  EXPECT_FALSE(style_of(piped).colour);
  Terminal unwilling = terminal;
  unwilling.no_colour = true;
  EXPECT_FALSE(style_of(unwilling).colour);
  Terminal dumb = terminal;
  dumb.term = "dumb";
  EXPECT_FALSE(style_of(dumb).colour);
}

TEST(TextStyle, UnicodeNeedsAUtf8Locale) {
  for (const auto& [locale, unicode] : {std::pair{"C", false},
                                        {"", false},
                                        {"POSIX", false},
                                        {"de_DE.ISO-8859-1", false},
                                        {"C.utf8", true},
                                        {"en_US.UTF-8", true}}) {
    const Terminal terminal{.is_tty = false, .no_colour = false, .term = "", .locale = locale};
    EXPECT_EQ(style_of(terminal).unicode, unicode) << locale;
  }
}

TEST(TextStyle, OnlyATerminalHasAWidth) {
  Terminal terminal{.is_tty = true,
                    .no_colour = false,
                    .term = "xterm",
                    .locale = "C",
                    .columns = "",
                    .window = 132};
  EXPECT_EQ(style_of(terminal).width, 132U);
  terminal.columns = "90";
  EXPECT_EQ(style_of(terminal).width, 90U);
  for (const char* no_number : {"0", "-5", "90x", "99999999999999999999999"}) {
    terminal.columns = no_number;
    EXPECT_EQ(style_of(terminal).width, 132U) << no_number;
  }
  terminal.columns = "3";
  EXPECT_EQ(style_of(terminal).width, 20U);
  terminal.columns = "";
  terminal.window = 0;
  EXPECT_EQ(style_of(terminal).width, 80U);
  Terminal piped = terminal;
  piped.is_tty = false;
  piped.columns = "90";
  EXPECT_EQ(style_of(piped).width, std::nullopt);
}

TEST(TextStyle, BarsAreProportional) {
  const TextStyle ascii{};
  const TextStyle unicode{.unicode = true};
  EXPECT_EQ(bar(0.5, 10, ascii), "#####");
  EXPECT_EQ(bar(0, 10, ascii), "");
  EXPECT_EQ(bar(7.0, 3, ascii), "###");
  EXPECT_EQ(bar(-1, 3, ascii), "");
  EXPECT_EQ(bar(std::numeric_limits<double>::quiet_NaN(), 3, ascii), "");
  EXPECT_EQ(bar(0.5, 1, unicode), "▌");
  EXPECT_EQ(bar(0.625, 2, unicode), "█▎");  // 1.25 columns
}

}  // namespace
}  // namespace mfsdp
