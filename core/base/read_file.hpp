// Files that are read whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// The content of a file or a pipe of at most `most` bytes; without the bound a mistyped path to
/// weights could fill the memory. Errors name the file, the reason, and what was `expected` ("a
/// config.json"): a directory, a device, a file that is too large, a Git LFS pointer or a saved web
/// page (core/base/file_kind.hpp).
[[nodiscard]] Result<std::string> read_file(const std::filesystem::path& path,
                                            std::string_view expected, std::size_t most);

}  // namespace mfsdp
