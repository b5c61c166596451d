#include "core/cli/table.hpp"

#include <algorithm>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"

namespace mfsdp {
namespace {

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::string blanks(width - std::min(width, display_width(text)), ' ');
  return align == Align::left ? text + blanks : blanks + text;
}

std::string escaped_for_markdown(const std::string& cell) {
  std::string out;
  for (const char c : printable(cell)) {
    if (c == '|' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string render_table(const Table& table) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : table.columns) lines[0].push_back(printable(column.title));
  for (const auto& row : table.rows) {
    auto& line = lines.emplace_back();
    for (const std::string& cell : row) line.push_back(printable(cell));
  }
  std::vector<std::size_t> widths(table.columns.size(), 0);
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], display_width(line[i]));

  std::string out;
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (i > 0) text += "  ";
      text += padded(line[i], widths[i], table.columns[i].align);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

std::string render_markdown_table(const Table& table) {
  std::string out = "|";
  for (const Column& column : table.columns) out += " " + escaped_for_markdown(column.title) + " |";
  out += "\n|";
  for (const Column& column : table.columns)
    out += column.align == Align::left ? " --- |" : " ---: |";
  out += "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (const std::string& cell : row) out += " " + escaped_for_markdown(cell) + " |";
    out += "\n";
  }
  return out;
}

}  // namespace mfsdp
