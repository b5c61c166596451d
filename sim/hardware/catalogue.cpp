#include "sim/hardware/catalogue.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/closest.hpp"

namespace mfsdp {

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

bool names_a_file(const std::string& name_or_path) {
  return name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml");
}

Result<std::filesystem::path> find_in_catalogue(const std::string& name_or_path,
                                                const Catalogue& catalogue) {
  if (names_a_file(name_or_path)) return std::filesystem::path(name_or_path);
  MFSDP_LET(names, list_catalogue(catalogue));
  if (std::ranges::find(names, name_or_path) == names.end())
    return fail(catalogue.flag,
                fmt::format("unknown {} \"{}\"; the closest is \"{}\" ({} shows all; a TOML file "
                            "works too)",
                            catalogue.thing, name_or_path, closest_to(name_or_path, names),
                            catalogue.list_flag));
  return catalogue.folder / (name_or_path + ".toml");
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
