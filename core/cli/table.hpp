// Aligned columns for people: --list-models, --list-gpus, --explain.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cli/text_style.hpp"

namespace mfsdp {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
  bool is_markdown = false;  ///< of links: render_markdown_table leaves its cells as they are
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

/// Text as Markdown shows it: printable, without emphasis, links, HTML or cells of its own.
[[nodiscard]] std::string markdown_text(std::string_view text);

/// The same as a Markdown table; cells are markdown_text.
[[nodiscard]] std::string render_markdown_table(const Table& table);

}  // namespace mfsdp
