// A TOML file as a flat list of named values, checked field by field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

/// Largest TOML file that is read.
inline constexpr std::size_t kMostTomlBytes = std::size_t{1} << 20;

/// One value; tables are joined into the key with dots: "memory.capacity_bytes".
struct TomlEntry {
  std::string key;
  std::variant<std::monostate, std::string, std::int64_t, double, bool> value;  ///< none: another
  std::uint32_t line = 0;
  bool used = false;
};

/// Inclusive limits of a field, in the field's unit.
struct FieldRange {
  double least = 0;
  double most = 0;
};

/// Reads fields by key and remembers the first mistake; a reader lists its fields and calls
/// finish() once. Wrong fields read as 0 or "".
class TomlFields {
 public:
  /// Errors, with file and line: text that is not TOML, or not ASCII outside comments.
  [[nodiscard]] static Result<TomlFields> parse(std::string_view text, const std::string& where);

  [[nodiscard]] std::string text(std::string_view key);
  [[nodiscard]] std::string text_or(std::string_view key, std::string otherwise);
  /// A finite number, integer or not, within the range.
  [[nodiscard]] double number(std::string_view key, FieldRange range);
  [[nodiscard]] std::optional<double> optional_number(std::string_view key, FieldRange range);
  [[nodiscard]] std::int64_t integer(std::string_view key, FieldRange range);
  /// All text values below `table`, with their keys relative to it.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> texts_below(
      std::string_view table);

  /// The keys below `table` relative to it, by line, for tables whose keys the file chooses.
  [[nodiscard]] std::vector<std::string> keys_below(std::string_view table) const;

  /// A value of any type, for fields with rules of their own; null where there is none.
  [[nodiscard]] const TomlEntry* find(std::string_view key);
  [[nodiscard]] bool has(std::string_view key) const;
  /// All entries, by line.
  [[nodiscard]] const std::vector<TomlEntry>& entries() const { return entries_; }
  /// Every key that was read so far.
  [[nodiscard]] const std::vector<std::string>& known_keys() const { return known_; }
  /// Notes a mistake at that key's line, unless an earlier one was noted.
  void reject(std::string_view key, std::string what);
  /// The first mistake, or an error for the first key that was not read.
  [[nodiscard]] Result<void> finish();

 private:
  explicit TomlFields(std::string where) : where_(std::move(where)) {}
  [[nodiscard]] const TomlEntry* require(std::string_view key, std::string_view expected);
  [[nodiscard]] double checked_number(const TomlEntry& entry, FieldRange range);

  std::string where_;
  std::vector<TomlEntry> entries_;
  std::vector<std::string> known_;
  std::optional<Error> mistake_;
};

}  // namespace mfsdp
