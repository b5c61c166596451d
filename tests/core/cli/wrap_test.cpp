#include "core/cli/wrap.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "core/cli/flags.hpp"
#include "core/cli/format.hpp"

namespace mfsdp {
namespace {

TextStyle wide(std::size_t width) { return {.width = width}; }

TEST(WrapLine, BreaksAtBlanksAndHangs) {
  EXPECT_EQ(wrap_line("one two three four", 9, 2),
            "one two\n"
            "  three\n"
            "  four");
  EXPECT_EQ(wrap_line("  one  two", 20, 4), "  one  two");
  EXPECT_EQ(wrap_line("", 20, 4), "");
}

TEST(WrapLine, KeepsWordsAndNumbersWithTheirUnits) {
  EXPECT_EQ(wrap_line("a 123456789012 b", 6, 0), "a\n123456789012\nb");
  EXPECT_EQ(wrap_line("takes 46.68 GiB, 5 words", 12, 0), "takes\n46.68 GiB, 5\nwords");
  EXPECT_EQ(longest_word("takes 46.68 GiB, 5 words"), 10U);  // "46.68 GiB,"
}

TEST(WrapLine, ColoursTakeNoColumns) {
  EXPECT_EQ(wrap_line("\x1b[1mone\x1b[0m two", 7, 0), "\x1b[1mone\x1b[0m two");
  EXPECT_EQ(wrap_line("\x1b[1mone\x1b[0m two", 6, 0), "\x1b[1mone\x1b[0m\ntwo");
}

TEST(WrapText, WithoutAWidthNothingChanges) {
  const std::string text = std::string(300, 'x') + " " + std::string(300, 'y') + "\n\n";
  EXPECT_EQ(wrap_text(text, {}), text);
}

TEST(WrapText, GoesOnUnderTheSecondField) {
  EXPECT_EQ(
      wrap_text("short\nTime   853 ms a step and more words\nno label here but words\n", wide(20)),
      "short\n"
      "Time   853 ms a step\n"
      "       and more\n"
      "       words\n"
      "no label here but\n"
      "  words\n");
}

RC_GTEST_PROP(WrapText, LosesNothingAndFitsWhereWordsDo, (std::vector<std::uint8_t> lengths)) {
  std::string line;
  for (const std::uint8_t length : lengths)
    line += std::string(line.empty() ? 0 : 1 + length % 3, ' ') + std::string(1 + length % 18, 'w');
  const std::string wrapped = wrap_text(line, wide(40));
  const auto without_blanks = [](std::string text) {
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    return text;
  };
  RC_ASSERT(without_blanks(wrapped) == without_blanks(line));
  for (const std::string& piece : split(wrapped, '\n')) RC_ASSERT(display_width(piece) <= 40U);
}

}  // namespace
}  // namespace mfsdp
