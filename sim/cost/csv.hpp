// A measured table: comma-separated values with one header line. Lines that start with # are notes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

class CsvTable {
 public:
  /// Errors name file and line: no header, or a row with another number of cells. A UTF-8 byte
  /// order mark is skipped.
  [[nodiscard]] static Result<CsvTable> parse(std::string_view text, const std::string& where);

  /// Cells of the first line that is not a note; empty if there is none. Other lines are not
  /// checked.
  [[nodiscard]] static std::vector<std::string> header_of(std::string_view text);

  [[nodiscard]] std::size_t rows() const { return rows_.size(); }
  /// Index of a column; an error if the header lacks it.
  [[nodiscard]] Result<std::size_t> column(std::string_view name) const;
  [[nodiscard]] const std::string& cell(std::size_t row, std::size_t column) const {
    return rows_[row].cells[column];
  }
  [[nodiscard]] bool has_column(std::string_view name) const;
  /// A positive number, at most 1e12.
  [[nodiscard]] Result<double> number(std::size_t row, std::size_t column) const;
  /// A positive integer, at most 1e12.
  [[nodiscard]] Result<std::int64_t> integer(std::size_t row, std::size_t column) const;
  /// "file:line" of a row.
  [[nodiscard]] std::string place(std::size_t row) const;

 private:
  struct Row {
    std::size_t line = 0;
    std::vector<std::string> cells;
  };
  std::string where_;
  std::vector<std::string> header_;
  std::vector<Row> rows_;
};

}  // namespace mfsdp
