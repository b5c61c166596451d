#include "core/cli/table.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/text.hpp"
#include "core/cli/flags.hpp"
#include "core/cli/format.hpp"
#include "core/cli/wrap.hpp"

namespace mfsdp {
namespace {

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::string blanks(width - std::min(width, display_width(text)), ' ');
  return align == Align::left ? text + blanks : blanks + text;
}

// ---- text ---------------------------------------------------------------------------------------

using Cells = std::vector<std::vector<std::string>>;  // titles first

constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrowText = 16;  // columns that a text is not squeezed below

Cells printable_cells(const Table& table) {
  Cells cells(1);
  for (const Column& column : table.columns) cells[0].push_back(printable(column.title));
  for (const auto& row : table.rows) {
    auto& line = cells.emplace_back();
    for (const std::string& cell : row) line.push_back(printable(cell));
  }
  return cells;
}

std::vector<std::size_t> natural_widths(const Cells& cells) {
  std::vector<std::size_t> widths(cells.front().size(), 0);
  for (const auto& row : cells)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], display_width(row[i]));
  return widths;
}

std::size_t table_width(const std::vector<std::size_t>& widths) {
  std::size_t columns = widths.empty() ? 0 : kGap * (widths.size() - 1);
  for (const std::size_t width : widths) columns += width;
  return columns;
}

/// Breaks titles at every blank, and also left-aligned texts, but not below kNarrowText.
/// Right-aligned cells are numbers and are never broken.
std::vector<std::size_t> narrow_widths(const Table& table, const Cells& cells,
                                       const std::vector<std::size_t>& natural) {
  std::vector<std::size_t> widths(natural.size(), 0);
  for (std::size_t r = 0; r < cells.size(); ++r)
    for (std::size_t i = 0; i < cells[r].size(); ++i) {
      const std::string& cell = cells[r][i];
      const bool whole = r > 0 && table.columns[i].align == Align::right;
      widths[i] = std::max(widths[i], whole ? display_width(cell) : longest_word(cell));
      const bool text = r > 0 && table.columns[i].align == Align::left;
      if (text) widths[i] = std::max(widths[i], std::min(kNarrowText, display_width(cell)));
    }
  return widths;
}

/// Distributes the remaining width among texts. Texts that need least come first; each gets as much
/// as it can use.
std::vector<std::size_t> widened(const Table& table, std::vector<std::size_t> widths,
                                 const std::vector<std::size_t>& natural, std::size_t width) {
  std::vector<std::size_t> order(widths.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    return std::pair(table.columns[i].align == Align::right, natural[i] - widths[i]);
  });
  std::size_t left = width - table_width(widths);
  for (const std::size_t i : order) {
    const std::size_t more = std::min(left, natural[i] - widths[i]);
    widths[i] += more;
    left -= more;
  }
  return widths;
}

/// A row of cells, some of several lines. Titles are aligned at the bottom, other cells at the top.
std::string as_row(const Table& table, const std::vector<std::string>& row, bool titles,
                   const std::vector<std::size_t>& widths) {
  std::vector<std::vector<std::string>> columns;
  std::size_t height = 1;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool whole = display_width(row[i]) <= widths[i];
    columns.push_back(whole ? std::vector{row[i]} : split(wrap_line(row[i], widths[i], 0), '\n'));
    height = std::max(height, columns.back().size());
  }
  std::string out;
  for (std::size_t line = 0; line < height; ++line) {
    std::string text;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::size_t above = titles ? height - columns[i].size() : 0;
      const bool filled = line >= above && line - above < columns[i].size();
      if (i > 0) text.append(kGap, ' ');
      text += padded(filled ? columns[i][line - above] : "", widths[i], table.columns[i].align);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

std::string as_lines(const Table& table, const Cells& cells,
                     const std::vector<std::size_t>& widths) {
  std::string out;
  for (std::size_t r = 0; r < cells.size(); ++r) out += as_row(table, cells[r], r == 0, widths);
  return out;
}

/// "title  value" lines, a blank line between rows.
std::string as_records(const Cells& cells, std::size_t width) {
  std::size_t widest = 0;
  for (const std::string& title : cells.front()) widest = std::max(widest, display_width(title));
  const std::size_t hang = std::min(widest + kGap, width / 2);
  std::string out;
  for (std::size_t r = 1; r < cells.size(); ++r) {
    if (r > 1) out += "\n";
    for (std::size_t i = 0; i < cells[r].size(); ++i)
      if (!cells[r][i].empty())
        out += wrap_line(padded(cells.front()[i], widest + kGap, Align::left) + cells[r][i], width,
                         hang) +
               "\n";
  }
  return out;
}

}  // namespace

std::string render_table(const Table& table, const TextStyle& style) {
  const Cells cells = printable_cells(table);
  const std::vector<std::size_t> natural = natural_widths(cells);
  if (!style.width || table_width(natural) <= *style.width) return as_lines(table, cells, natural);
  const std::vector<std::size_t> narrow = narrow_widths(table, cells, natural);
  if (table_width(narrow) > *style.width) return as_records(cells, *style.width);
  return as_lines(table, cells, widened(table, narrow, natural, *style.width));
}

std::string markdown_text(std::string_view text) {
  // "_" stays: inside a word, as in keys, Markdown gives it no meaning.
  constexpr std::string_view meaningful = "\\`*[]|~";
  std::string shown = printable(text);
  if (shown == "*") return shown;  // a mark, which emphasises nothing
  std::string out;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const char c = shown[i];
    const char next = i + 1 < shown.size() ? lower_case(shown[i + 1]) : ' ';
    const bool letter = next >= 'a' && next <= 'z';
    const bool tag = c == '<' && (letter || next == '/' || next == '!' || next == '?');
    const bool entity = c == '&' && (letter || next == '#');
    if (tag || entity || meaningful.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string render_markdown_table(const Table& table) {
  std::string out = "|";
  for (const Column& column : table.columns) out += " " + markdown_text(column.title) + " |";
  out += "\n|";
  for (const Column& column : table.columns)
    out += column.align == Align::left ? " --- |" : " ---: |";
  out += "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (std::size_t c = 0; c < row.size(); ++c)
      out += " " + (table.columns[c].is_markdown ? row[c] : markdown_text(row[c])) + " |";
    out += "\n";
  }
  return out;
}

}  // namespace mfsdp
