#include "tests/arrows/arrows.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "tests/arrows/source_text.hpp"
#include "tests/arrows/table.hpp"

namespace mfsdp::arrows {
namespace {

namespace fs = std::filesystem;

bool is_cmake(std::string_view path) { return path.ends_with("CMakeLists.txt"); }

bool is_header(std::string_view path) {
  return path.ends_with(".hpp") || path.ends_with(".h") || path.ends_with(".cuh");
}

// ---- CMake -----------------------------------------------------------------------------------

/// Whether `seer` may link `target`: an external library, or a module in its line of the table.
std::optional<std::string> wrong_link(const Room& seer, const std::string& target) {
  const Room* seen = room_of_target(target);
  if (seen == nullptr) return std::nullopt;
  if (std::ranges::find(seer.sees, seen->name) != seer.sees.end()) return std::nullopt;
  return std::string(seer.target) + " may not see " + target;
}

void check_room_call(const File& file, const CMakeCall& call, std::vector<Violation>& list) {
  if (call.arguments.empty()) return;
  const Room* room = room_of_target(call.arguments.front());
  if (room == nullptr) {
    list.push_back({file.path, call.line, call.arguments.front() + " is not in the table"});
    return;
  }
  std::string section;
  for (const std::string& word : call.arguments) {
    if (word == "FOLDERS" || word == "SEES") {
      section = word;
    } else if (section == "FOLDERS" && room_of(word) != room) {
      list.push_back(
          {file.path, call.line, word + " is not a folder of " + call.arguments.front()});
    } else if (section == "SEES") {
      if (const auto wrong = wrong_link(*room, word))
        list.push_back({file.path, call.line, *wrong});
    }
  }
}

void check_link_call(const File& file, const CMakeCall& call, std::vector<Violation>& list) {
  if (call.arguments.empty()) return;
  const std::string& target = call.arguments.front();
  if (is_main_target(target)) return;
  const Room* room = room_of_target(target);
  for (std::size_t i = 1; i < call.arguments.size(); ++i) {
    const std::string& word = call.arguments[i];
    if (room != nullptr) {
      if (const auto wrong = wrong_link(*room, word))
        list.push_back({file.path, call.line, *wrong});
    } else if (room_of_target(word) != nullptr) {
      list.push_back({file.path, call.line,
                      target + " is neither a room nor a main and may not link " + word});
    }
  }
}

/// Folders that hold what is built, or what tools keep.
bool is_no_source(std::string_view top) {
  return top.starts_with('.') || top == "build" || top.starts_with("build-");
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

std::vector<File> read_tree(const fs::path& root) {
  static const std::set<std::string> endings{".cpp", ".hpp", ".h", ".cu", ".cuh", ".inc"};
  std::vector<File> files;
  for (const auto& top : fs::directory_iterator(root)) {
    if (!top.is_directory() || is_no_source(top.path().filename().string())) continue;
    for (const auto& entry : fs::recursive_directory_iterator(top)) {
      const fs::path& path = entry.path();
      if (!entry.is_regular_file()) continue;
      if (!endings.contains(path.extension()) && path.filename() != "CMakeLists.txt") continue;
      files.push_back({fs::relative(path, root).generic_string(), read_text(path)});
    }
  }
  std::ranges::sort(files, {}, &File::path);
  return files;
}

std::vector<Violation> check_includes(const File& file) {
  std::vector<Violation> list;
  const Room* seer = room_of(file.path);
  const bool test = is_test(file.path);
  const bool free = test || is_main(file.path);
  if (seer == nullptr && !free) {
    list.push_back({file.path, 1, "lies in no room of the table"});
    return list;
  }
  const std::set<std::string_view> visible =
      free ? std::set<std::string_view>{} : visible_from(*seer);
  for (const Include& include : includes_of(file.text)) {
    if (!include.quoted || (test && is_test(include.path))) continue;
    const Room* seen = room_of(include.path);
    if (is_test(include.path)) {
      list.push_back({file.path, include.line, "only tests may see \"" + include.path + "\""});
    } else if (seen == nullptr) {
      list.push_back(
          {file.path, include.line,
           "\"" + include.path + "\" is not a path from the repository's root to a room"});
    } else if (!free && !visible.contains(seen->name)) {
      list.push_back({file.path, include.line,
                      std::string(seer->name) + " may not see " + std::string(seen->name) + ": \"" +
                          include.path + "\""});
    }
  }
  return list;
}

namespace {

bool includes(const File& file, const std::string& path) {
  return std::ranges::any_of(includes_of(file.text),
                             [&](const Include& include) { return include.path == path; });
}

}  // namespace

bool is_private_header(const std::string& path, const std::vector<File>& files) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  if (!is_header(path)) return false;
  return std::ranges::all_of(files, [&](const File& file) {
    if (!includes(file, path)) return true;
    if (!file.path.starts_with(folder)) return false;
    if (!is_header(file.path)) return true;
    // A header without an includer may be meant for other projects.
    const bool is_used =
        std::ranges::any_of(files, [&](const File& user) { return includes(user, file.path); });
    return is_used && is_private_header(file.path, files);
  });
}

std::vector<Violation> check_libraries(const File& file, bool is_private) {
  std::vector<Violation> list;
  if (is_test(file.path)) return list;
  for (const Include& include : includes_of(file.text)) {
    const auto library = std::ranges::find_if(libraries(), [&](const Library& candidate) {
      return std::regex_match(include.path, candidate.header);
    });
    if (library == libraries().end()) continue;
    const auto holds = [&](std::string_view folder) { return is_under(file.path, folder); };
    const std::string named = std::string(library->name) + ": <" + include.path + ">";
    if (!library->folders.empty() && std::ranges::none_of(library->folders, holds)) {
      list.push_back({file.path, include.line, "may not see " + named});
    } else if (library->sources_only && is_header(file.path) && !is_private) {
      list.push_back({file.path, include.line, "a header may not include " + named});
    }
  }
  return list;
}

std::vector<Violation> check_manners(const File& file) {
  static const std::regex main_function(R"((^|\s)int\s+main\s*\()");
  std::vector<Violation> list;
  if (is_main(file.path) || is_probe(file.path) || is_test(file.path)) return list;
  std::size_t number = 0;
  for (const std::string& line : split_lines(code_of(file.text))) {
    ++number;
    if (std::regex_search(line, main_function))
      list.push_back({file.path, number, "a program that is not one of the mains"});
    for (const Manner& manner : manners())
      if (file.path != manner.except && std::regex_search(line, manner.pattern))
        list.push_back({file.path, number, "a library " + std::string(manner.what) + ": " + line});
  }
  return list;
}

std::vector<Violation> check_links(const File& file) {
  std::vector<Violation> list;
  if (is_test(file.path)) return list;
  for (const CMakeCall& call : cmake_calls(file.text)) {
    if (call.name == "mfsdp_room") check_room_call(file, call, list);
    if (call.name == "target_link_libraries") check_link_call(file, call, list);
  }
  return list;
}

std::vector<Violation> check_types(const std::vector<File>& files) {
  static const std::regex namespace_start(R"(^namespace (mfsdp[\w:]*) \{)");
  static const std::regex definition(
      R"(^(?:struct|class|enum|enum class) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?: ?:[^:;][^;]*)? ?\{)");
  std::vector<Violation> list;
  std::map<std::string, std::string> first;  // "mfsdp::Name" -> header
  for (const File& file : files) {
    if (!is_header(file.path) || is_test(file.path)) continue;
    std::string scope;
    std::size_t number = 0;
    for (const std::string& line : split_lines(code_of(file.text))) {
      ++number;
      std::smatch match;
      if (std::regex_search(line, match, namespace_start)) scope = match[1];
      if (scope.empty() || !std::regex_search(line, match, definition)) continue;
      const std::string name = scope + "::" + match[1].str();
      const auto [known, is_new] = first.emplace(name, file.path);
      if (!is_new)
        list.push_back({file.path, number, name + " is also defined in " + known->second});
    }
  }
  return list;
}

std::vector<Violation> check_own_headers(const std::vector<File>& files) {
  std::set<std::string> paths;
  for (const File& file : files) paths.insert(file.path);
  std::vector<Violation> list;
  for (const File& file : files) {
    if (!file.path.ends_with(".cpp")) continue;
    const std::string header = file.path.substr(0, file.path.size() - 3) + "hpp";
    if (!paths.contains(header)) continue;
    const std::vector<Include> includes = includes_of(file.text);
    if (includes.empty() || includes.front().path != header)
      list.push_back({file.path, includes.empty() ? 1 : includes.front().line,
                      "expected \"" + header + "\" before other includes"});
  }
  return list;
}

std::vector<Violation> check(const std::vector<File>& files) {
  std::vector<Violation> all;
  const auto add = [&](std::vector<Violation> found) {
    all.insert(all.end(), std::move_iterator(found.begin()), std::move_iterator(found.end()));
  };
  for (const File& file : files) {
    if (is_cmake(file.path)) {
      add(check_links(file));
      continue;
    }
    add(check_includes(file));
    std::vector<Violation> found = check_libraries(file);
    if (!found.empty() && is_private_header(file.path, files)) found = check_libraries(file, true);
    add(std::move(found));
    add(check_manners(file));
  }
  add(check_types(files));
  add(check_own_headers(files));
  return all;
}

}  // namespace mfsdp::arrows
