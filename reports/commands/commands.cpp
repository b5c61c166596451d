#include "reports/commands/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/base/closest.hpp"
#include "core/cli/common_options.hpp"
#include "core/cli/format.hpp"
#include "core/cli/wrap.hpp"
#include "reports/session/run_main.hpp"

namespace mfsdp {
namespace {

/// Options before a command, or in place of one.
struct OwnOptions {
  bool help = false;
  std::optional<HelpFormat> format = {};
  bool version = false;
};

std::vector<FlagGroup> own_flags(OwnOptions& o) {
  return {{.title = "Without a command",
           .flags = {switch_flag("--help", "show this text", o.help), help_format_flag(o.format),
                     switch_flag("--version", "show version and build", o.version)}}};
}

HelpText report_text() {
  return {
      .tool = "mfsdp-report",
      .purpose = "Lists, compares and judges the runs that the other tools have stored.",
      .examples = {{"mfsdp-report list --model llama3_8b --kind measured", "what was measured"},
                   {"mfsdp-report show @latest", "the run that was stored last"},
                   {"mfsdp-report show 3fa9 --output json", "a run by the beginning of its id"}},
      .negative = "a verdict is negative",
      .details =
          "A RUN is the beginning of its run_id, its row, its name, @latest, @best (most "
          "tokens/s per GPU of one model, cluster and kind) or a mark such as @baseline. "
          "id:BEGINNING, row:N and name:TEXT select one of the first three.",
      .description =
          "mfsdp-sim and mfsdp-exec store each run: what it was asked, its plan's hash, memory, "
          "times and steps. This tool reads that store, takes in what other trainers have left, "
          "and holds runs against budgets and against each other.",
      .files = files_of_tools(true)};
}

bool asks_about_tool(const std::string& first) {
  return first == "-h" || first == "help" || first.starts_with("--help") || first == "--version";
}

Result<std::string> about_tool(std::vector<std::string> args, const Session& session) {
  // The remaining arguments belong to a command.
  if (const std::string& first = args.front();
      first == "help" || first == "--help" || first == "-h")
    args = {"--help"};
  OwnOptions options;
  MFSDP_TRY(parse_flags(own_flags(options), args));
  if (options.format) return manual_in_format(report_manual(), *options.format);
  if (options.version) return render_version(session.tool);
  return wrap_text(render_help(report_manual()), session.style);
}

}  // namespace

const std::vector<Command>& report_commands() {
  static const std::vector<Command> commands{
      list_command(),    show_command(), compare_command(), check_command(),  baseline_command(),
      history_command(), html_command(), export_command(),  import_command(), gc_command()};
  return commands;
}

Manual report_manual() {
  Manual manual = manual_of(report_text(), own_flags);
  for (const Command& command : report_commands()) manual.commands.push_back(command.manual());
  return manual;
}

Result<ExitCode> run_report(const std::vector<std::string>& args, const Session& session) {
  const std::string first = args.empty() ? "" : args.front();
  if (asks_about_tool(first)) {
    MFSDP_LET(text, about_tool(args, session));
    session.out << text;
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
