#include "tests/arrows/arrows.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "tests/arrows/source_text.hpp"

namespace mfsdp::arrows {
namespace {

namespace fs = std::filesystem;

// ---- the table -------------------------------------------------------------------------------

/// Programs that compose rooms: parse flags, call libraries, print.
constexpr std::array<std::string_view, 4> mains{"sim/main.cpp", "verify/main.cpp",
                                                "reports/main.cpp", "gpu_backend/main.cpp"};
/// What a main is made of where it would be too long: its actions.
constexpr std::array<std::string_view, 3> actions{"sim/tool", "verify/tool", "gpu_backend/tool"};
constexpr std::array<std::string_view, 5> main_targets{
    "mfsdp-sim", "mfsdp_sim_actions", "mfsdp-verify", "mfsdp-report", "mfsdp-exec"};

/// Where headers of a library may be included. An empty `folders` means everywhere.
struct Library {
  std::string_view name;
  std::regex header;  ///< what stands between < and >
  std::vector<std::string_view> folders;
  bool sources_only;  ///< not in headers
};

const std::vector<Library>& libraries() {
  static const std::vector<Library> table{
      {"CUDA",
       std::regex("(cuda|cublas|cudnn|nccl|nvtx|nvrtc|cupti|cooperative_groups|driver_types).*"),
       {"gpu_backend/cuda"},
       false},
      {"SQLite", std::regex("(SQLiteCpp/.*|sqlite3.*)"), {"reports"}, true},
      {"zlib", std::regex("zlib\\.h"), {"reports", "verify/traces"}, true},
      {"Boost.Graph",
       std::regex("boost/(graph|property_map)/.*"),
       {"core/recipe", "core/schedule", "core/memory", "sim"},
       true},
      {"Boost.Program_options", std::regex("boost/program_options.*"), {"core/cli"}, true},
      {"Boost", std::regex("boost/.*"), {}, true},
      // Forward declarations (json_fwd.hpp) are light enough for a header.
      {"nlohmann-json", std::regex("nlohmann/(?!json_fwd).*"), {}, true},
      {"toml++", std::regex("(toml\\+\\+|toml).*"), {"core/base", "sim", "reports"}, true},
  };
  return table;
}

/// What only a program may say. Matched on code without comments and strings.
struct Manner {
  std::string_view what;
  std::regex pattern;
};

const std::vector<Manner>& manners() {
  static const std::vector<Manner> table = [] {
    std::vector<Manner> list;
    list.push_back({"prints: <iostream> belongs to programs",
                    std::regex(R"(#\s*include\s*<(iostream|print)>)")});
    list.push_back({"prints", std::regex(R"(\bstd::(cout|cerr|clog)\b)")});
    list.push_back({"prints", std::regex(R"(\bfmt::(v9::)?(print|println)\s*\()")});
    list.push_back({"prints", std::regex(R"((^|[^\w.>])(v?f?printf|f?puts|putchar|perror)\s*\()")});
    list.push_back({"exits", std::regex(R"((^|[^\w.>])(_?exit|_Exit|quick_exit|abort)\s*\()")});
    return list;
  }();
  return table;
}

// ---- paths and text --------------------------------------------------------------------------

bool is_under(std::string_view path, std::string_view folder) {
  return path == folder ||
         (path.starts_with(folder) && path.size() > folder.size() && path[folder.size()] == '/');
}

bool is_main(std::string_view path) {
  return std::ranges::find(mains, path) != mains.end() ||
         std::ranges::any_of(actions, [&](auto folder) { return is_under(path, folder); });
}

/// A small program beside the CUDA code that measures one fact of a machine.
bool is_probe(std::string_view path) {
  return is_under(path, "gpu_backend/cuda") &&
         (path.ends_with("_probe.cpp") || path.ends_with("_probe.cu"));
}

bool is_cmake(std::string_view path) { return path.ends_with("CMakeLists.txt"); }

bool is_header(std::string_view path) {
  return path.ends_with(".hpp") || path.ends_with(".h") || path.ends_with(".cuh");
}

const Room* room_of(std::string_view path) {
  const Room* best = nullptr;
  std::size_t longest = 0;
  for (const Room& room : rooms())
    for (const std::string_view folder : room.folders)
      if (is_under(path, folder) && folder.size() > longest) {
        best = &room;
        longest = folder.size();
      }
  return best;
}

const Room* room_named(std::string_view name) {
  const auto found = std::ranges::find(rooms(), name, &Room::name);
  return found == rooms().end() ? nullptr : &*found;
}

const Room* room_of_target(std::string_view target) {
  const auto found = std::ranges::find(rooms(), target, &Room::target);
  return found == rooms().end() ? nullptr : &*found;
}

/// The rooms that `room` may include: itself, what it sees, and what those see.
std::set<std::string_view> visible_from(const Room& room) {
  std::set<std::string_view> seen{room.name};
  std::vector<std::string_view> next = room.sees;
  while (!next.empty()) {
    const std::string_view name = next.back();
    next.pop_back();
    if (!seen.insert(name).second) continue;
    const Room* other = room_named(name);
    if (other != nullptr) next.insert(next.end(), other->sees.begin(), other->sees.end());
  }
  return seen;
}

// ---- CMake -----------------------------------------------------------------------------------

/// Whether `seer` may link `target`: a library of others, or a room in its line of the table.
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
  if (std::ranges::find(main_targets, target) != main_targets.end()) return;
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

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

const std::vector<Room>& rooms() {
  static const std::vector<Room> table{
      // The one header of core that the checker sees; no target of its own.
      {"error", "mfsdp_error", {"core/base/error.hpp"}, {}},
      {"plan", "mfsdp_plan", {"core/base", "core/model", "core/shard", "core/plan"}, {"error"}},
      {"planner", "mfsdp_planner", {"core/recipe", "core/schedule", "core/memory"}, {"plan"}},
      {"runtime", "mfsdp_runtime", {"core/runtime"}, {"plan"}},
      {"cli", "mfsdp_cli", {"core/cli"}, {"plan"}},
      {"store", "mfsdp_store", {"reports/store", "reports/trace"}, {"plan"}},
      {"tool", "mfsdp_tool", {"reports/tool"}, {"cli", "store"}},
      {"reports", "mfsdp_reports", {"reports"}, {"plan", "store"}},
      {"sim", "mfsdp_sim", {"sim"}, {"planner"}},
      {"findings", "mfsdp_findings", {"verify/findings"}, {"plan"}},
      {"proof", "mfsdp_proof", {"verify/proof"}, {"findings"}},
      {"conformance", "mfsdp_conformance", {"verify/conformance"}, {"findings"}},
      {"bugs", "mfsdp_bugs", {"verify/bugs"}, {"proof", "planner", "cli"}},
      {"traces", "mfsdp_traces", {"verify/traces"}, {"findings", "cli"}},
      // The checker reads a plan's JSON and shares nothing with what wrote it.
      {"checker", "mfsdp_checker", {"verify/checker"}, {"error"}},
      {"mutation", "mfsdp_mutation", {"verify/mutation"}, {"proof", "checker"}},
      {"cpu", "mfsdp_cpu", {"verify/cpu"}, {"runtime"}},
      {"launch", "mfsdp_launch", {"gpu_backend/launch"}, {"plan"}},
      {"train",
       "mfsdp_train",
       {"gpu_backend/train", "gpu_backend/checkpoint", "gpu_backend/weights"},
       {"runtime", "store", "launch"}},
      {"cuda", "mfsdp_cuda", {"gpu_backend/cuda"}, {"runtime", "launch"}},
  };
  return table;
}

std::vector<File> read_tree(const fs::path& root) {
  static const std::set<std::string> endings{".cpp", ".hpp", ".h", ".cu", ".cuh", ".inc"};
  std::vector<File> files;
  for (const char* top : {"core", "sim", "verify", "reports", "gpu_backend"}) {
    if (!fs::exists(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
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
  const bool free = is_main(file.path);
  if (seer == nullptr && !free) {
    list.push_back({file.path, 1, "lies in no room of the table"});
    return list;
  }
  const std::set<std::string_view> visible =
      free ? std::set<std::string_view>{} : visible_from(*seer);
  for (const Include& include : includes_of(file.text)) {
    if (!include.quoted || (free && is_main(include.path))) continue;
    const Room* seen = room_of(include.path);
    if (seen == nullptr) {
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

bool is_private_header(const std::string& path, const std::vector<File>& files) {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return is_header(path) && std::ranges::all_of(files, [&](const File& file) {
           const bool is_own_source = !is_header(file.path) && file.path.starts_with(folder);
           return is_own_source ||
                  std::ranges::none_of(includes_of(file.text),
                                       [&](const Include& i) { return i.path == path; });
         });
}

std::vector<Violation> check_libraries(const File& file, bool is_private) {
  std::vector<Violation> list;
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
  const bool program = is_main(file.path) || is_probe(file.path);
  if (program) return list;
  std::size_t number = 0;
  for (const std::string& line : split_lines(code_of(file.text))) {
    ++number;
    if (std::regex_search(line, main_function))
      list.push_back({file.path, number, "a program that is not one of the mains"});
    for (const Manner& manner : manners())
      if (std::regex_search(line, manner.pattern))
        list.push_back({file.path, number, "a library " + std::string(manner.what) + ": " + line});
  }
  return list;
}

std::vector<Violation> check_links(const File& file) {
  std::vector<Violation> list;
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
    if (!is_header(file.path) || is_under(file.path, "tests")) continue;
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
