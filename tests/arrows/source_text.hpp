// Just enough reading of C++ and CMake for the rules: lines, includes, calls, code without
// comments.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::arrows {

struct Include {
  std::size_t line = 0;
  std::string path;
  bool quoted = false;
};

struct CMakeCall {
  std::string name;
  std::vector<std::string> arguments;
  std::size_t line = 0;
};

[[nodiscard]] std::vector<std::string> split_lines(const std::string& text);

[[nodiscard]] std::vector<Include> includes_of(const std::string& text);

/// The text of a C++ source with comments and string contents blanked, lines kept.
[[nodiscard]] std::string code_of(std::string_view text);

/// Calls of a CMakeLists.txt with their words. Comments go first; nested brackets, as in
/// generator expressions, do not occur in the calls that are of interest.
[[nodiscard]] std::vector<CMakeCall> cmake_calls(const std::string& text);

}  // namespace mfsdp::arrows
