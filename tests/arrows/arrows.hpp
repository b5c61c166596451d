// The house rules that a compiler does not check: which room may see which, and which words stay
// out of libraries. Works on texts, so that its own tests can hold wrong ones.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::arrows {

/// A file as the rules see it; `path` is relative to the repository's root, with '/'.
struct File {
  std::string path;
  std::string text;
};

struct Violation {
  std::string path;
  std::size_t line = 0;  ///< from 1
  std::string what;

  friend bool operator==(const Violation&, const Violation&) = default;
};

/// One line of the table in core/README.md. A room sees its own folders, `sees` and what those
/// see. Folders are matched longest first.
struct Room {
  std::string_view name;
  std::string_view target;  ///< CMake target
  std::vector<std::string_view> folders;
  std::vector<std::string_view> sees;  ///< names of rooms
};

[[nodiscard]] const std::vector<Room>& rooms();

/// Every C++ and CUDA source, header and CMakeLists.txt under the rooms' top folders.
[[nodiscard]] std::vector<File> read_tree(const std::filesystem::path& root);

/// Quoted includes of a source against the table. Mains may see every room.
[[nodiscard]] std::vector<Violation> check_includes(const File& file);

/// Whether only sources of its own folder include this header, so that what it includes stays
/// there.
[[nodiscard]] bool is_private_header(const std::string& path, const std::vector<File>& files);

/// Includes of other libraries: CUDA, SQLite, Boost, JSON, TOML, zlib each in their place, and
/// none of them but CUDA in a header, unless that is a private one.
[[nodiscard]] std::vector<Violation> check_libraries(const File& file, bool is_private = false);

/// Libraries never print and never exit; programs start in the mains alone.
[[nodiscard]] std::vector<Violation> check_manners(const File& file);

/// mfsdp_room and target_link_libraries of a CMakeLists.txt against the table.
[[nodiscard]] std::vector<Violation> check_links(const File& file);

/// Types of one name in one namespace of the project, defined in two headers: a program that holds
/// both has one of them where the other is meant, and no compiler says so. Reads definitions that
/// start a line; specialisations of templates are not of that name.
[[nodiscard]] std::vector<Violation> check_types(const std::vector<File>& files);

/// Sources that do not include the header of their name first: so that it stands alone, or they
/// would not compile. Headers without such a source are compiled by themselves.
[[nodiscard]] std::vector<Violation> check_own_headers(const std::vector<File>& files);

/// All of the above, each where it applies.
[[nodiscard]] std::vector<Violation> check(const std::vector<File>& files);

}  // namespace mfsdp::arrows
