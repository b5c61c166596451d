#include "sim/hardware/catalogue.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/closest.hpp"
#include "core/base/text.hpp"

namespace mfsdp {
namespace {

/// "DGX-H100" -> "dgxh100", "A100-80GB" -> "a10080"
std::string squashed_name(std::string_view name) {
  const std::string letters = joined_words(name, "-_ ");
  const bool sized = letters.size() > 2 && letters.ends_with("gb") &&
                     letters[letters.size() - 3] >= '0' && letters[letters.size() - 3] <= '9';
  return sized ? letters.substr(0, letters.size() - 2) : letters;
}

/// Names that extend the requested name by a word: a100_40 and a100_80 for a100.
std::vector<std::string> variants_of(const std::string& asked,
                                     const std::vector<std::string>& names) {
  std::vector<std::string> kinds;
  for (const std::string& name : names)
    for (std::size_t i = name.find('_'); i != std::string::npos; i = name.find('_', i + 1))
      if (squashed_name(name.substr(0, i)) == asked) kinds.push_back(name);
  return kinds;
}

/// "h100" -> "100"; the letter o counts as a zero.
std::string digits_of(std::string_view name) {
  std::string digits;
  for (const char c : name) {
    if (c >= '0' && c <= '9') digits += c;
    if (c == 'o' || c == 'O') digits += '0';
  }
  return digits;
}

/// True if the letters of one name occur in the other, in their order: "hh100" and "h1oo" contain
/// the letters of h100, "v100" does not. The letter o is ignored.
bool has_letters_of(std::string_view name, std::string_view asked) {
  const auto letters_of = [](std::string_view of) {
    std::string letters;
    for (const char c : lower_case(of))
      if (c >= 'a' && c <= 'z' && c != 'o') letters += c;
    return letters;
  };
  std::string fewer = letters_of(name);
  std::string more = letters_of(asked);
  if (fewer.size() > more.size()) std::swap(fewer, more);
  std::size_t at = 0;
  for (const char c : more)
    if (at < fewer.size() && fewer[at] == c) ++at;
  return at == fewer.size();
}

/// True if `text` contains `word`, not preceded by a letter or digit: "h200" is in
/// "nvidia-h200-sxm", and not in "gh200".
bool has_word(std::string_view text, std::string_view word) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
  };
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1))
    if (at == 0 || !is_letter(text[at - 1])) return true;
  return false;
}

}  // namespace

Result<std::vector<std::string>> list_catalogue(const Catalogue& catalogue) {
  std::error_code error;
  std::vector<std::string> names;
  for (auto entry = std::filesystem::directory_iterator(catalogue.folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".toml") names.push_back(entry->path().stem().string());
  }
  if (error)
    return fail(catalogue.folder.string(),
                fmt::format("{} catalogue cannot be read: {}", catalogue.thing, error.message()),
                Fault::environment);
  std::ranges::sort(names);
  return names;
}

std::string meant_entry(std::string_view asked, const std::vector<std::string>& names) {
  std::string best;
  for (const std::string& name : names)
    if (name.size() > best.size() && has_word(lower_case(asked), name)) best = name;
  for (const std::string& name : names)
    if (best.empty() && lower_case(asked).ends_with(name)) best = name;  // h200 for gh200
  if (!best.empty()) return best;
  std::vector<std::string> same_number;
  for (const std::string& name : names)
    if ((digits_of(name) == digits_of(asked) && has_letters_of(name, asked)) ||
        name.starts_with(lower_case(asked)))
      same_number.push_back(name);
  const std::string closest = closest_to(asked, same_number);
  constexpr std::size_t kShare = 2;  // share of letters that may differ
  return edit_distance(asked, closest) <= closest.size() / kShare ? closest : "";
}

bool names_a_file(const std::string& name_or_path) {
  return name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml");
}

Result<std::filesystem::path> find_in_catalogue(const std::string& name_or_path,
                                                const Catalogue& catalogue) {
  if (names_a_file(name_or_path)) return std::filesystem::path(name_or_path);
  MFSDP_LET(names, list_catalogue(catalogue));
  const std::string asked = squashed_name(name_or_path);
  const auto found = std::ranges::find(names, asked, squashed_name);
  if (found != names.end()) return catalogue.folder / (*found + ".toml");
  const std::vector<std::string> kinds = variants_of(asked, names);
  if (kinds.size() > 1)
    return fail(catalogue.flag, fmt::format("\"{}\" is {}: name one of them", name_or_path,
                                            fmt::join(kinds, " or ")));
  const std::string meant = meant_entry(name_or_path, names);
  return fail(catalogue.flag,
              fmt::format("unknown {} \"{}\"; {} ({} shows all; a TOML file works too)",
                          catalogue.thing, name_or_path,
                          meant.empty() ? "the catalogue has nothing like it"
                                        : fmt::format("the closest is \"{}\"", meant),
                          catalogue.list_flag));
}

std::vector<std::pair<std::string, std::string>> read_sources(TomlFields& fields) {
  const std::vector<std::string> known = fields.known_keys();
  auto sources = fields.texts_below("source");
  for (const auto& [key, source] : sources) {
    if (std::ranges::find(known, key) == known.end())
      fields.reject("source." + key, fmt::format("is the source of no key; the closest is \"{}\"",
                                                 closest_to(key, known)));
  }
  return sources;
}

}  // namespace mfsdp
