// The frame of every tool's main: help and version, errors and exceptions, exit codes.
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

/// Runs `work` and returns the process's exit status. Each error or exception becomes one line on
/// `err`. So does a failed write to `out`, unless `work` returned the code of an error, which it
/// has then reported. `arguments`: without the program's name; if two flags mean the same, errors
/// name the given one.
[[nodiscard]] int run_main(std::string_view tool, const std::vector<std::string>& arguments,
                           std::ostream& out, std::ostream& err,
                           const std::function<Result<ExitCode>()>& work);

/// The text for --help, --help-format or --version, if one of them was given: the tool then does
/// nothing else. `manual` is called for the first two only.
[[nodiscard]] std::optional<std::string> self_description(const CommonOptions& options,
                                                          std::string_view tool,
                                                          const std::function<Manual()>& manual);

/// The output of --help-format, with the names of this machine's scenarios.
[[nodiscard]] std::string manual_in_format(Manual manual, HelpFormat format);

}  // namespace mfsdp
