// The subcommands of mfsdp-report.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/commands/command.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

// Each has a source of its own.

/// The runs of a store, a line each.
[[nodiscard]] Command list_command();
/// Prints a stored run as the tool that made it printed it.
[[nodiscard]] Command show_command();
/// Runs side by side.
[[nodiscard]] Command compare_command();
/// A run, or two commands, held against a budget.
[[nodiscard]] Command check_command();
/// Names the run that others are compared with, and the golden values that it leaves.
[[nodiscard]] Command baseline_command();
/// A figure over many runs, and where it changed for good.
[[nodiscard]] Command history_command();
/// Runs as one page.
[[nodiscard]] Command html_command();
/// Runs as lines of JSON, or as a store of their own.
[[nodiscard]] Command export_command();
/// Imports files of other tools, and results and stores of mfsdp, into the store.
[[nodiscard]] Command import_command();
/// Removes runs from a store.
[[nodiscard]] Command gc_command();

/// All of them, in the order of --help. A new command is a row here.
[[nodiscard]] const std::vector<Command>& report_commands();

/// The manual of the tool with its commands.
[[nodiscard]] Manual report_manual();

/// Hands the arguments to the command that the first of them names. Errors: no command, or one that
/// is not there, where the closest is named.
[[nodiscard]] Result<ExitCode> run_report(const std::vector<std::string>& args,
                                          const Session& session);

}  // namespace mfsdp
