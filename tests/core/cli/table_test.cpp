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

TEST(Table, MarkdownEscapesBars) {
  const Table table{.columns = {{"a"}, {"n", Align::right}}, .rows = {{"x|y", "1"}}};
  EXPECT_EQ(render_markdown_table(table),
            "| a | n |\n"
            "| --- | ---: |\n"
            "| x\\|y | 1 |\n");
}

}  // namespace
}  // namespace mfsdp
