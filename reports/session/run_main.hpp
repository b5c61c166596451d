// The frame of every tool's main: what it says of itself, what ends a process, and how.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"
#include "core/cli/exit_code.hpp"

namespace mfsdp {

/// Runs `work` and returns the process's exit status. Errors and exceptions become one line on
/// `err`; so does data that cannot be written to `out`, unless `work` has ended by a code of an
/// error, which it then has told. `arguments`: without the program's name; of two flags that mean
/// the same, errors name the one that was given.
[[nodiscard]] int run_main(std::string_view tool, const std::vector<std::string>& arguments,
                           std::ostream& out, std::ostream& err,
                           const std::function<Result<ExitCode>()>& work);

/// What --help, --help-format or --version asks for, where one of them was given: nothing else is
/// to be done then. `manual` is called for the first two alone.
[[nodiscard]] std::optional<std::string> self_description(const CommonOptions& options,
                                                          std::string_view tool,
                                                          const std::function<Manual()>& manual);

/// What --help-format prints, with the names of this machine's scenarios.
[[nodiscard]] std::string manual_in_format(Manual manual, HelpFormat format);

}  // namespace mfsdp
