// The names in backticks on a page of docs/, for tests that compare them with the code.
#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mfsdp::test {

/// The words between backticks of the section under the heading "## SECTION", or of all of the page
/// where none is named: `all_gather_bytes` is one, and so is each of `a`, `b`.
inline std::set<std::string> documented(const std::string& page, std::string_view section = {}) {
  const auto path = std::filesystem::path(MFSDP_SOURCE_DIR) / "docs" / page;
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::set<std::string> words;
  bool counts = section.empty();
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ") && !section.empty()) counts = line.substr(3) == section;
    if (!counts) continue;
    std::istringstream parts(line);
    bool inside = false;
    for (std::string part; std::getline(parts, part, '`'); inside = !inside)
      if (inside) words.insert(part);
  }
  return words;
}

}  // namespace mfsdp::test
