// Files that the user names as input.
#pragma once

#include <string>

#include "core/base/error.hpp"

namespace mfsdp {

/// The file's whole content. The error (input) names the file and why it cannot be read.
[[nodiscard]] Result<std::string> read_input_file(const std::string& path);

}  // namespace mfsdp
