// Rules that a compiler does not check: which module may see which, and which words libraries must
// not contain. Works on texts, so that its own tests can hold wrong ones.
#pragma once

#include <filesystem>
#include <string>
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

/// Every C++ and CUDA source, header and CMakeLists.txt of the repository, in whatever folder.
[[nodiscard]] std::vector<File> read_tree(const std::filesystem::path& root);

/// Quoted includes of a source against the table, in which it must have a module. Mains may see
/// every module. So may tests, which no module and no main may see.
[[nodiscard]] std::vector<Violation> check_includes(const File& file);

/// Whether only sources of its own folder include this header, and private headers there, so that
/// what it includes stays there.
[[nodiscard]] bool is_private_header(const std::string& path, const std::vector<File>& files);

/// Includes of other libraries outside of tests: CUDA, SQLite, Boost, JSON, TOML, zlib each in
/// their place, and none of them but CUDA in a header, unless that is a private one.
[[nodiscard]] std::vector<Violation> check_libraries(const File& file, bool is_private = false);

/// Libraries never print and never exit; programs start in the mains alone. Tests are free.
[[nodiscard]] std::vector<Violation> check_manners(const File& file);

/// mfsdp_room and target_link_libraries of a CMakeLists.txt against the table; those of tests link
/// what they test.
[[nodiscard]] std::vector<Violation> check_links(const File& file);

/// Types of one name in one namespace of the project, defined in two headers: a program with both
/// uses one of them in place of the other, and no compiler reports it. Reads definitions that start
/// a line. Specialisations of templates do not count.
[[nodiscard]] std::vector<Violation> check_types(const std::vector<File>& files);

/// Sources that do not include the header of their name first. If it is first, the header must
/// compile without others. Headers without such a source are compiled by themselves.
[[nodiscard]] std::vector<Violation> check_own_headers(const std::vector<File>& files);

/// All of the above, each where it applies.
[[nodiscard]] std::vector<Violation> check(const std::vector<File>& files);

}  // namespace mfsdp::arrows
