// The tables of the rules: modules and their visibility, the programs, and the folders that may use
// other libraries. The table in core/README.md shows the same modules.
#pragma once

#include <regex>
#include <set>
#include <string_view>
#include <vector>

namespace mfsdp::arrows {

/// One line of the table in core/README.md. A module sees its own folders, `sees` and those that
/// they see. Folders are matched longest first.
struct Room {
  std::string_view name;
  std::string_view target;  ///< CMake target
  std::vector<std::string_view> folders;
  std::vector<std::string_view> sees;  ///< names of modules
};

[[nodiscard]] const std::vector<Room>& rooms();

/// The module of a source; null for none.
[[nodiscard]] const Room* room_of(std::string_view path);
[[nodiscard]] const Room* room_of_target(std::string_view target);

/// The names of the modules that `room` may include: itself, those that it sees, and so on.
[[nodiscard]] std::set<std::string_view> visible_from(const Room& room);

/// Sources of programs, which compose modules: parse flags, call libraries, print.
[[nodiscard]] bool is_main(std::string_view path);
/// Their CMake targets.
[[nodiscard]] bool is_main_target(std::string_view target);

/// Tests see every module, and no module sees them.
[[nodiscard]] bool is_test(std::string_view path);

/// A small program beside the CUDA code that measures one fact of a machine.
[[nodiscard]] bool is_probe(std::string_view path);

/// `path` is the folder or lies in it.
[[nodiscard]] bool is_under(std::string_view path, std::string_view folder);

/// Where headers of a library may be included. An empty `folders` means everywhere.
struct Library {
  std::string_view name;
  std::regex header;  ///< the text between < and >
  std::vector<std::string_view> folders;
  bool sources_only;  ///< not in headers
};

[[nodiscard]] const std::vector<Library>& libraries();

/// Words that only programs may use. Matched on code without comments and strings.
struct Manner {
  std::string_view what;
  std::regex pattern;
  std::string_view except = {};  ///< the one library source that may
};

[[nodiscard]] const std::vector<Manner>& manners();

}  // namespace mfsdp::arrows
