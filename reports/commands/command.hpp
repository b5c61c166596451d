// A subcommand of mfsdp-report: its name, its flags and what it does.
//
// A new one is a file with its options (derived from ReportOptions) and its action, and a row in
// commands.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "core/cli/flags.hpp"
#include "core/cli/help.hpp"
#include "reports/commands/report_options.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// How many arguments that are no flags a command takes, and what messages call them.
struct WordRule {
  std::string name;  ///< "RUN", "FILE"; empty: the command takes none
  std::size_t least = 0;
  std::size_t most = std::numeric_limits<std::size_t>::max();
  std::string usage = {};  ///< empty: as usage_of() has it
  FlagValues values = {};  ///< of the first of them
};

/// "RUN...", "[RUN...]", "RUN RUN..."
[[nodiscard]] std::string usage_of(const WordRule& rule);

struct Command {
  std::string name;
  std::string summary;  ///< one line of the list of commands
  std::function<Manual()> manual;
  /// `args`: what follows the command's name.
  std::function<Result<ExitCode>(const std::vector<std::string>& args, const Session&)> run;
};

/// The parts of a command. Options: ReportOptions, or a struct derived from it.
template <class Options>
struct CommandParts {
  std::string name;
  std::string summary;
  WordRule words;
  HelpText (*help)() = nullptr;
  std::vector<FlagGroup> (*flags)(Options&) = nullptr;  ///< bound to the options
  Result<ExitCode> (*act)(const Options&, const Session&) = nullptr;
};

/// Reads flags and words into `options`, and checks the number of words. `notes`: remarks on the
/// flags. With --help and --version, words may be missing.
[[nodiscard]] Result<void> read_arguments(const std::vector<std::string>& args,
                                          const std::vector<FlagGroup>& groups,
                                          const WordRule& rule, const std::string& command,
                                          ReportOptions& options);

/// Prints the text of --help or --version on session.out. False if neither was given.
[[nodiscard]] bool described(const ReportOptions& options, const HelpText& help,
                             const std::vector<FlagGroup>& groups, const Session& session);

template <class Options>
[[nodiscard]] Command make_command(CommandParts<Options> parts) {
  Command command;
  command.name = parts.name;
  command.summary = parts.summary;
  command.manual = [parts] {
    Manual manual = manual_of(parts.help(), parts.flags);
    manual.words = usage_of(parts.words);
    manual.word_values = parts.words.values;
    manual.name = parts.name;
    manual.summary = parts.summary;
    return manual;
  };
  command.run = [parts = std::move(parts)](const std::vector<std::string>& args,
                                           const Session& session) -> Result<ExitCode> {
    Options options;
    const std::vector<FlagGroup> groups = parts.flags(options);
    MFSDP_TRY(read_arguments(args, groups, parts.words, parts.name, options));
    if (described(options, parts.help(), groups, session)) return ExitCode::good;
    for (const std::string& note : options.notes) report_note(session.err, note, session.tool);
    return parts.act(options, session);
  };
  return command;
}

}  // namespace mfsdp
