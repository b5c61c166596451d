#include "sim/cost/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/base/byte_order_mark.hpp"

namespace mfsdp {
namespace {

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> cells;
  while (true) {
    const std::size_t comma = line.find(',');
    cells.emplace_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

/// Removes the first line of `text` and returns it.
std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_note(std::string_view line) { return line.empty() || line.front() == '#'; }

}  // namespace

std::vector<std::string> CsvTable::header_of(std::string_view text) {
  text = without_byte_order_mark(text);
  while (!text.empty())
    if (const std::string_view line = next_line(text); !is_note(line)) return split(line);
  return {};
}

Result<CsvTable> CsvTable::parse(std::string_view text, const std::string& where) {
  CsvTable table;
  table.where_ = where;
  std::size_t number = 0;
  text = without_byte_order_mark(text);
  while (!text.empty()) {
    ++number;
    const std::string_view line = next_line(text);
    if (is_note(line)) continue;
    std::vector<std::string> cells = split(line);
    if (table.header_.empty()) {
      table.header_ = std::move(cells);
    } else if (cells.size() != table.header_.size()) {
      return fail(
          fmt::format("{}:{}", where, number),
          fmt::format("has {} cells; the header has {}", cells.size(), table.header_.size()));
    } else {
      table.rows_.push_back(Row{.line = number, .cells = std::move(cells)});
    }
  }
  if (table.rows_.empty()) return fail(where, "holds no table; expected a header and rows");
  return table;
}

Result<std::size_t> CsvTable::column(std::string_view name) const {
  const auto found = std::ranges::find(header_, name);
  if (found == header_.end()) return fail(where_, fmt::format("has no column \"{}\"", name));
  return static_cast<std::size_t>(found - header_.begin());
}

Result<double> CsvTable::number(std::size_t row, std::size_t column) const {
  const std::string& text = cell(row, column);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0 && value <= 1e12))
    return fail(place(row), fmt::format("{} is \"{}\"; expected a number above 0 and at most 1e12",
                                        header_[column], text.substr(0, 40)));
  return value;
}

bool CsvTable::has_column(std::string_view name) const {
  return std::ranges::find(header_, name) != header_.end();
}

Result<std::int64_t> CsvTable::integer(std::size_t row, std::size_t column) const {
  MFSDP_LET(value, number(row, column));
  const auto integer = static_cast<std::int64_t>(value);
  if (static_cast<double>(integer) != value)
    return fail(place(row), fmt::format("{} is \"{}\"; expected an integer", header_[column],
                                        cell(row, column).substr(0, 40)));
  return integer;
}

std::string CsvTable::place(std::size_t row) const {
  return fmt::format("{}:{}", where_, rows_[row].line);
}

}  // namespace mfsdp
