// Files that are read whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// The content of a file, or of a pipe, of at most `most` bytes: the bound keeps a mistyped path to
/// weights from filling the memory. Errors name the file and say why: a directory, a device or a
/// file that is too large, where `expected` ("a config.json") was expected; a Git LFS pointer or a
/// saved web page, which no reader takes (core/base/file_kind.hpp).
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path,
                                            std::string_view expected, std::size_t most);

}  // namespace mfsdp
