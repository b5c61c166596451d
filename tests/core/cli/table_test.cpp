#include "core/cli/table.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

TEST(Table, AlignsColumnsByCharacters) {
  const Table table{.columns = {{"name"}, {"bytes", Align::right}},
                    .rows = {{"gr\xc3\xbc\xc3\x9f", "1"}, {"b", "1,000"}}};
  EXPECT_EQ(render_table(table),
            "name  bytes\n"
            "gr\xc3\xbc\xc3\x9f      1\n"
            "b     1,000\n");
}

TEST(Table, LinesHaveNoTrailingBlanksAndCellsNoLineBreaks) {
  const Table table{.columns = {{"a"}, {"b"}}, .rows = {{"x\ny", ""}, {"longer word", "z"}}};
  EXPECT_EQ(render_table(table),
            "a            b\n"
            "x\\ny\n"
            "longer word  z\n");
}

/// Text, number, text: 4 + 2 + 10 + 2 + 44 = 62 columns.
Table texts_and_a_number() {
  return {.columns = {{"rule"}, {"free bytes", Align::right}, {"what it finds"}},
          .rows = {{"r101", "1,234,567", "two ops that touch the same bytes, unordered"},
                   {"r2", "8", "nothing"}}};
}

TEST(Table, TitlesAndTextsTakeSeveralLinesWhereThereIsNoRoom) {
  EXPECT_EQ(render_table(texts_and_a_number(), {.width = 62}), render_table(texts_and_a_number()));
  // The number keeps its 9 columns, the text has 40 - 4 - 9 - 2 * 2 = 23.
  EXPECT_EQ(render_table(texts_and_a_number(), {.width = 40}),
            "           free\n"
            "rule      bytes  what it finds\n"
            "r101  1,234,567  two ops that touch the\n"
            "                 same bytes, unordered\n"
            "r2            8  nothing\n");
}

TEST(Table, ANarrowTerminalGetsRecords) {
  Table table = texts_and_a_number();
  table.rows[1][1] = "";
  // 4 + 2 + 9 + 2 + 16, the least of a text, is 33.
  EXPECT_EQ(render_table(table, {.width = 32}),
            "rule           r101\n"
            "free bytes     1,234,567\n"
            "what it finds  two ops that\n"
            "               touch the same\n"
            "               bytes, unordered\n"
            "\n"
            "rule           r2\n"
            "what it finds  nothing\n");
}

TEST(Table, NoWidthBreaksANumber) {
  Table table{.columns = {{"n", Align::right}, {"step", Align::right}},
              .rows = {{"123,456,789,012,345", "1,234.567 s"}}};
  EXPECT_EQ(render_table(table, {.width = 20}),
            "n     123,456,789,012,345\n"
            "step  1,234.567 s\n");
}

TEST(MarkdownText, IsShownAsItStands) {
  EXPECT_EQ(markdown_text("[a](https://b) <img src=x> &lt; **b** `c` ~~d~~ a_b|\\"),
            "\\[a\\](https://b) \\<img src=x> \\&lt; \\*\\*b\\*\\* \\`c\\` \\~\\~d\\~\\~ "
            "a_b\\|\\\\");
  EXPECT_EQ(markdown_text("<0.1 % </b> a & b"), "<0.1 % \\</b> a & b");
  EXPECT_EQ(markdown_text("a\u202Eb"), "a\\\\u202eb");
}

TEST(Table, MarkdownEscapesBars) {
  const Table table{.columns = {{"a"}, {"n", Align::right}}, .rows = {{"x|y", "1"}}};
  EXPECT_EQ(render_markdown_table(table),
            "| a | n |\n"
            "| --- | ---: |\n"
            "| x\\|y | 1 |\n");
}

}  // namespace
}  // namespace mfsdp
