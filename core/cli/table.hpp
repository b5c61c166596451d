// Aligned columns: --list-models, --list-gpus, --explain.
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
  std::vector<std::vector<std::string>> rows =
      {};  ///< each with as many cells as there are columns
};

/// The table as lines, two spaces between columns, no trailing blanks; widths count UTF-8
/// characters. Cells are made printable. A row is one line if it fits in the style's width.
/// Otherwise titles and texts take several lines. If that is still too wide, each row becomes a
/// record with one line for each cell that is not empty. Numbers are never broken.
[[nodiscard]] std::string render_table(const Table& table, const TextStyle& style = {});

/// Text for a Markdown cell: printable, and shown without emphasis, links, HTML or further cells.
[[nodiscard]] std::string markdown_text(std::string_view text);

/// The same as a Markdown table; cells are markdown_text.
[[nodiscard]] std::string render_markdown_table(const Table& table);

}  // namespace mfsdp
