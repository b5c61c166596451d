// Access to cells of a CSV by column name.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "core/base/read_file.hpp"
#include "sim/cost/csv.hpp"

namespace mfsdp {

inline constexpr std::size_t kMostScenarioBytes = std::size_t{1} << 20;

[[nodiscard]] inline Result<CsvTable> read_table(const std::filesystem::path& file) {
  MFSDP_LET(text, read_file(file, "a table", kMostScenarioBytes));
  return CsvTable::parse(text, file.string());
}

/// The cell in a column, by the column's name.
[[nodiscard]] inline Result<std::string> text_cell(const CsvTable& table, std::size_t row,
                                                   std::string_view name) {
  MFSDP_LET(column, table.column(name));
  return table.cell(row, column);
}

[[nodiscard]] inline Result<double> number_cell(const CsvTable& table, std::size_t row,
                                                std::string_view name) {
  MFSDP_LET(column, table.column(name));
  return table.number(row, column);
}

[[nodiscard]] inline Result<std::int64_t> integer_cell(const CsvTable& table, std::size_t row,
                                                       std::string_view name) {
  MFSDP_LET(column, table.column(name));
  return table.integer(row, column);
}

}  // namespace mfsdp
