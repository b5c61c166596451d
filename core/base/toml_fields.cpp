#include "core/base/toml_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include "core/base/byte_order_mark.hpp"
#include "core/base/closest.hpp"
#include "core/base/excerpt.hpp"
#include "core/base/file_kind.hpp"

// The text "[#" violates an assertion of toml++ 3.3 (under NDEBUG an assumption), whose next lines
// would report that mistake. Without the assertion they do.
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace mfsdp {
namespace {

/// Keys can hold any character and be of any length; messages stay on one line.
std::string shown(std::string_view key) { return excerpt(key); }

std::string at_line(const std::string& where, std::uint32_t line) {
  return line == 0 ? where : fmt::format("{}:{}", where, line);
}

void flatten(const toml::table& table, const std::string& prefix, std::vector<TomlEntry>& out) {
  for (auto&& [key, node] : table) {
    std::string name = prefix + std::string(key.str());
    const toml::table* inner = node.as_table();
    // An empty table is kept as an entry without a value, so that it is refused where a value is
    // due.
    if (inner != nullptr && !(inner->is_inline() && inner->empty())) {
      flatten(*inner, name + ".", out);
      continue;
    }
    TomlEntry entry{.key = std::move(name), .value = {}, .line = key.source().begin.line};
    if (const auto* text = node.as_string()) entry.value = text->get();
    if (const auto* integer = node.as_integer()) entry.value = integer->get();
    if (const auto* real = node.as_floating_point()) entry.value = real->get();
    if (const auto* yes_or_no = node.as_boolean()) entry.value = yes_or_no->get();
    out.push_back(std::move(entry));
  }
}

/// The text in ASCII: other characters become "?" in comments and are errors elsewhere.
/// toml++ 3.3 has undefined behaviour for some of them outside strings, such as U+00A1.
Result<std::string> ascii_of(std::string_view text, const std::string& where) {
  std::string ascii(without_byte_order_mark(text));
  std::uint32_t line = 1;
  bool comment = false;
  for (char& c : ascii) {
    if (c == '\n') {
      ++line;
      comment = false;
    }
    if (c == '#') comment = true;
    if (static_cast<unsigned char>(c) < 0x80) continue;
    if (!comment)
      return fail(at_line(where, line), "holds a character beyond ASCII outside a comment");
    c = '?';
  }
  return ascii;
}

/// toml++ recurses into each part of a dotted key without a limit.
Result<void> check_depth(std::string_view text, const std::string& where) {
  constexpr int kMostParts = 100;
  std::uint32_t line = 1;
  int dots = 0;
  char quote = '\0';
  for (const char c : text) {
    if (c == '\n') {
      ++line;
      dots = 0;
      quote = '\0';
    } else if (c == '"' || c == '\'') {
      if (quote == '\0')
        quote = c;
      else if (quote == c)
        quote = '\0';
    } else if (c == '.' && quote == '\0' && ++dots >= kMostParts) {
      return fail(at_line(where, line),
                  fmt::format("holds a key of more than {} parts", kMostParts));
    }
  }
  return {};
}

std::string limits(FieldRange range) {
  return fmt::format("from {} to {}", range.least, range.most);
}

}  // namespace

Result<TomlFields> TomlFields::parse(std::string_view text, const std::string& where) {
  // A table of TOML may begin as a list of JSON does: ["a name"].
  auto other = expected_other_kind(text, FileKind::text, "TOML");
  if (other && file_kind(text) != FileKind::json) return fail(where, std::move(*other));
  MFSDP_LET(ascii, ascii_of(text, where));
  MFSDP_TRY(check_depth(ascii, where));
  const toml::parse_result parsed = toml::parse(ascii);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    if (other) return fail(where, std::move(*other));
    return fail(at_line(where, error.source().begin.line),
                fmt::format("not TOML: {}", shown(error.description())));
  }
  TomlFields fields(where);
  flatten(parsed.table(), "", fields.entries_);
  std::ranges::stable_sort(fields.entries_, {}, &TomlEntry::line);
  return fields;
}

const TomlEntry* TomlFields::find(std::string_view key) {
  known_.emplace_back(key);
  const auto found = std::ranges::find(entries_, key, &TomlEntry::key);
  if (found == entries_.end()) return nullptr;
  found->used = true;
  return &*found;
}

const TomlEntry* TomlFields::require(std::string_view key, std::string_view expected) {
  const TomlEntry* entry = find(key);
  if (entry == nullptr && std::ranges::find(missing_, key, &Missing::key) == missing_.end())
    missing_.push_back({.key = std::string(key), .expected = std::string(expected)});
  return entry;
}

bool TomlFields::has(std::string_view key) const {
  return std::ranges::find(entries_, key, &TomlEntry::key) != entries_.end();
}

void TomlFields::note(std::string_view key, std::uint32_t line, std::string what) {
  if (std::ranges::find(mistakes_, key, &Mistake::key) == mistakes_.end())
    mistakes_.push_back({.key = std::string(key), .line = line, .what = std::move(what)});
}

void TomlFields::reject(std::string_view key, std::string what) {
  const auto found = std::ranges::find(entries_, key, &TomlEntry::key);
  note(key, found == entries_.end() ? 0 : found->line, fmt::format("{} {}", shown(key), what));
}

void TomlFields::example(std::string_view key, std::string value) {
  examples_.emplace_back(key, std::move(value));
}

void TomlFields::inherit(const TomlFields& base, std::span<const std::string_view> left_out) {
  constexpr std::string_view kSource = "source.";
  std::vector<TomlEntry> taken;
  for (TomlEntry entry : base.entries_) {
    std::string_view field = entry.key;
    if (field.starts_with(kSource)) field.remove_prefix(kSource.size());
    const bool is_left_out = std::ranges::any_of(left_out, [&](std::string_view one) {
      return field == one || (field.starts_with(one) && field[one.size()] == '.');
    });
    if (is_left_out || has(field) || has(entry.key)) continue;
    entry.line = 0;
    entry.used = false;
    taken.push_back(std::move(entry));
  }
  entries_.insert(entries_.end(), std::make_move_iterator(taken.begin()),
                  std::make_move_iterator(taken.end()));
}

std::string TomlFields::text(std::string_view key) {
  const TomlEntry* entry = require(key, "text in quotes");
  if (entry == nullptr) return {};
  const auto* value = std::get_if<std::string>(&entry->value);
  if (value == nullptr || value->empty()) {
    reject(key, "must be text in quotes, not empty");
    return {};
  }
  return *value;
}

std::string TomlFields::text_or(std::string_view key, std::string otherwise) {
  if (has(key)) return text(key);
  known_.emplace_back(key);
  return otherwise;
}

double TomlFields::checked_number(const TomlEntry& entry, FieldRange range) {
  double value = NAN;
  if (const auto* integer = std::get_if<std::int64_t>(&entry.value))
    value = static_cast<double>(*integer);
  else if (const auto* real = std::get_if<double>(&entry.value))
    value = *real;
  else
    reject(entry.key, fmt::format("must be a number {}", limits(range)));
  if (!(value >= range.least && value <= range.most)) {
    reject(entry.key, fmt::format("is {}; expected a number {}", value, limits(range)));
    return 0;
  }
  return value;
}

double TomlFields::number(std::string_view key, FieldRange range) {
  const TomlEntry* entry = require(key, fmt::format("a number {}", limits(range)));
  return entry == nullptr ? 0 : checked_number(*entry, range);
}

std::optional<double> TomlFields::optional_number(std::string_view key, FieldRange range) {
  const TomlEntry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  return checked_number(*entry, range);
}

std::int64_t TomlFields::integer(std::string_view key, FieldRange range) {
  const TomlEntry* entry = require(key, fmt::format("an integer {}", limits(range)));
  if (entry == nullptr) return 0;
  const auto* value = std::get_if<std::int64_t>(&entry->value);
  if (value == nullptr) {
    reject(key, fmt::format("must be an integer {}", limits(range)));
    return 0;
  }
  return checked_number(*entry, range) == 0 ? 0 : *value;
}

std::vector<std::pair<std::string, std::string>> TomlFields::texts_below(std::string_view table) {
  const std::string prefix = std::string(table) + ".";
  std::vector<std::pair<std::string, std::string>> found;
  for (TomlEntry& entry : entries_) {
    if (!entry.key.starts_with(prefix)) continue;
    entry.used = true;
    if (const auto* value = std::get_if<std::string>(&entry.value))
      found.emplace_back(entry.key.substr(prefix.size()), *value);
    else
      reject(entry.key, "must be text in quotes");
  }
  return found;
}

std::vector<std::string> TomlFields::keys_below(std::string_view table) const {
  const std::string prefix = std::string(table) + ".";
  std::vector<std::string> keys;
  for (const TomlEntry& entry : entries_)
    if (entry.key.starts_with(prefix)) keys.push_back(entry.key.substr(prefix.size()));
  return keys;
}

void TomlFields::note_unread() {
  for (const TomlEntry& entry : entries_) {
    if (entry.used) continue;
    const std::string closest = closest_to(entry.key, known_);
    note(entry.key, entry.line,
         fmt::format("unknown key \"{}\"; the closest is \"{}\"", shown(entry.key), closest));
    // A misspelt key also leaves its field missing; the misspelling is the better message.
    std::erase_if(missing_, [&](const Missing& one) { return one.key == closest; });
  }
}

Error TomlFields::missing_fields() const {
  const auto example_of = [&](const std::string& key) {
    const auto found =
        std::ranges::find(examples_, key, &std::pair<std::string, std::string>::first);
    return found == examples_.end() ? "" : ", such as " + found->second;
  };
  if (missing_.size() == 1)
    return {where_, fmt::format("{} is missing; expected {}{}", missing_.front().key,
                                missing_.front().expected, example_of(missing_.front().key))};
  std::string list;
  for (const Missing& one : missing_)
    list += fmt::format("{}{} ({}{})", list.empty() ? "" : ", ", one.key, one.expected,
                        example_of(one.key));
  return {where_, fmt::format("{} keys are missing: {}", missing_.size(), list)};
}

Result<void> TomlFields::finish() {
  note_unread();
  std::ranges::stable_sort(mistakes_, [](const Mistake& a, const Mistake& b) {
    const auto place = [](const Mistake& one) { return one.line == 0 ? UINT32_MAX : one.line; };
    return place(a) < place(b);
  });
  Reasons reasons;
  for (const Mistake& one : mistakes_) reasons.add(Error{at_line(where_, one.line), one.what});
  if (!missing_.empty()) reasons.add(missing_fields());
  return reasons.verdict();
}

}  // namespace mfsdp
