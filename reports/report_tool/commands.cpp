#include "reports/report_tool/commands.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/closest.hpp"
#include "core/cli/format.hpp"
#include "core/cli/wrap.hpp"
#include "reports/report_tool/baseline_runs.hpp"
#include "reports/report_tool/check_runs.hpp"
#include "reports/report_tool/collect_runs.hpp"
#include "reports/report_tool/compare_runs.hpp"
#include "reports/report_tool/export_runs.hpp"
#include "reports/report_tool/history_of_runs.hpp"
#include "reports/report_tool/html_page.hpp"
#include "reports/report_tool/import_runs.hpp"
#include "reports/report_tool/list_runs.hpp"
#include "reports/report_tool/show_run.hpp"

namespace mfsdp {

const std::vector<Command>& report_commands() {
  static const std::vector<Command> commands{
      list_command(),    show_command(), compare_command(), check_command(),  baseline_command(),
      history_command(), html_command(), export_command(),  import_command(), gc_command()};
  return commands;
}

std::string report_help() {
  std::string text =
      "mfsdp-report - Lists, compares and judges the runs that the other tools have stored.\n\n"
      "Examples:\n"
      "  mfsdp-report list --model llama3_8b --kind measured   what was measured\n"
      "  mfsdp-report show @latest                             the run that was stored last\n"
      "  mfsdp-report show 3fa9 --output json                  a run by the beginning of its id\n"
      "\nCommands (mfsdp-report COMMAND --help shows the flags of each):\n";
  for (const Command& command : report_commands())
    text += fmt::format("  {:<10} {}\n", command.name, command.summary);
  return text +
         "\nA RUN is the beginning of its run_id, its row, its name, @latest, @best (most "
         "tokens/s\n"
         "per GPU of one model, cluster and kind) or a mark such as @baseline.\n"
         "id:BEGINNING, row:N and name:TEXT say which of the first three is meant.\n"
         "\nExit status: 0 good; 1 a verdict is negative; 2 wrong flags or input;\n"
         "  3 the machine: disk, store, installation; 130 interrupted, what was done is kept.\n";
}

Result<ExitCode> run_report(const std::vector<std::string>& args, const Session& session) {
  const std::string first = args.empty() ? "" : args.front();
  if (first == "--version") {
    session.out << render_version(session.tool);
    return ExitCode::good;
  }
  if (first == "--help" || first == "-h" || first == "help") {
    session.out << wrap_text(report_help(), session.style);
    return ExitCode::good;
  }
  std::vector<std::string> names;
  for (const Command& command : report_commands()) names.push_back(command.name);
  if (first.empty()) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return fail("", fmt::format("expected a command: {}; see --help", all));
  }
  const auto found = std::ranges::find(report_commands(), first, &Command::name);
  if (found == report_commands().end()) {
    const std::string closest = closest_to(first, names);
    // A word that is far from all commands was no slip of the hand, and gc removes runs.
    const bool far = edit_distance(first, closest) > 2 && !closest.starts_with(first);
    const std::string all = fmt::format("{}", fmt::join(names, ", "));
    return fail("", fmt::format("unknown {} {}; {}",
                                first.starts_with("-") ? "flag before the command" : "command",
                                in_quotes(first),
                                far || (closest == "gc" && edit_distance(first, closest) > 1)
                                    ? "the commands are " + all
                                    : fmt::format("did you mean '{}'?", closest)));
  }
  return found->run({args.begin() + 1, args.end()}, session);
}

}  // namespace mfsdp
