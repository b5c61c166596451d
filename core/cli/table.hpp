// Aligned columns for people: --list-models, --list-gpus, --explain.
#pragma once

#include <string>
#include <vector>

#include "core/cli/text_style.hpp"

namespace mfsdp {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  ///< each with as many cells as there are columns
};

/// The table as lines, two spaces between columns, no trailing blanks; widths count UTF-8
/// characters. Cells are made printable, so that a row is one line wherever there is room. Where
/// the style's width is less, titles and texts take several lines; where that is not enough, each
/// row is a record: a line for each cell that is not empty. Numbers are never broken.
[[nodiscard]] std::string render_table(const Table& table, const TextStyle& style = {});

/// The same as a Markdown table; "|" in cells is escaped.
[[nodiscard]] std::string render_markdown_table(const Table& table);

}  // namespace mfsdp
