// The subcommands of mfsdp-report.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/commands/command.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// All of them, in the order of --help. A new command is a row here.
[[nodiscard]] const std::vector<Command>& report_commands();

/// The manual of the tool with its commands.
[[nodiscard]] Manual report_manual();

/// Hands the arguments to the command that the first of them names. Errors: no command, or one that
/// is not there, where the closest is named.
[[nodiscard]] Result<ExitCode> run_report(const std::vector<std::string>& args,
                                          const Session& session);

}  // namespace mfsdp
