// Flags in a file: --options FILE.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"

namespace mfsdp {

/// Calls `work` with a command line (without the program's name) that begins with the flags of the
/// file of --options. The file is TOML; each key is a flag without its dashes (`micro-batch = 2`;
/// switches are true or false). A flag of the command line replaces the file's. Errors: the file is
/// missing or not of this form; an error about one of its flags names the file and the line.
[[nodiscard]] Result<ExitCode> with_options_file(
    const std::vector<std::string>& arguments,
    const std::function<Result<ExitCode>(const std::vector<std::string>&)>& work);

/// A flag as on the command line; a switch has no value.
struct GivenFlag {
  std::string name;  ///< with its dashes
  std::string value;
};

/// The text of such a file: `comments`, one line each, and the flags in order.
[[nodiscard]] std::string render_options_file(const std::vector<std::string>& comments,
                                              const std::vector<GivenFlag>& flags);

}  // namespace mfsdp
