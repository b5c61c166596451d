// Flags in a file: --options FILE.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"

namespace mfsdp {

/// Does `work` with a command line (without the program's name) before whose flags stand those of
/// the file that --options names: TOML, each key a flag without its dashes (`micro-batch = 2`,
/// switches are true or false). A flag of the command line replaces the file's. Errors: the file is
/// missing or no such TOML; what is wrong with one of its flags names the file and its line.
[[nodiscard]] Result<ExitCode> with_options_file(
    const std::vector<std::string>& arguments,
    const std::function<Result<ExitCode>(const std::vector<std::string>&)>& work);

/// A flag as the command line has it; a switch has no value.
struct GivenFlag {
  std::string name;  ///< with its dashes
  std::string value;
};

/// Such a file: `comments`, a line each, and the flags in order.
[[nodiscard]] std::string render_options_file(const std::vector<std::string>& comments,
                                              const std::vector<GivenFlag>& flags);

}  // namespace mfsdp
