// A TOML file as a flat list of named values, checked field by field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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

/// Reads fields by key and remembers all mistakes; a reader lists its fields and calls finish()
/// once. Wrong fields read as 0 or "".
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
  /// Notes a mistake at that key's line, unless that key has one.
  void reject(std::string_view key, std::string what);
  /// False once a field was wrong or missing. Rules about several fields hold only for sound ones.
  [[nodiscard]] bool sound() const { return mistakes_.empty() && missing_.empty(); }
  /// The error of a file that is no such file at all.
  [[nodiscard]] tl::unexpected<Error> refuse(std::string what) const {
    return fail(where_, std::move(what));
  }
  /// A value as people write it, for the error of a missing field: "128", "\"pcie\"".
  void example(std::string_view key, std::string value);
  /// Takes from `base` the fields that this file does not have, each with its entry of [source].
  /// `left_out` names fields and tables that are not taken.
  void inherit(const TomlFields& base, std::span<const std::string_view> left_out);
  /// All mistakes as one error, by line: keys that were not read and wrong values; then missing
  /// fields, in one line.
  [[nodiscard]] Result<void> finish();

 private:
  explicit TomlFields(std::string where) : where_(std::move(where)) {}
  [[nodiscard]] const TomlEntry* require(std::string_view key, std::string_view expected);
  void note(std::string_view key, std::uint32_t line, std::string what);
  void note_unread();
  [[nodiscard]] Error missing_fields() const;
  [[nodiscard]] double checked_number(const TomlEntry& entry, FieldRange range);

  std::string where_;
  std::vector<TomlEntry> entries_;
  struct Mistake {
    std::string key;
    std::uint32_t line = 0;  ///< 0: none
    std::string what;
  };
  struct Missing {
    std::string key;
    std::string expected;
  };

  std::vector<std::string> known_;
  std::vector<Mistake> mistakes_;
  std::vector<Missing> missing_;
  std::vector<std::pair<std::string, std::string>> examples_;  ///< key -> value
};

}  // namespace mfsdp
