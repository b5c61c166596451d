// mfsdp-exec: reads flags and hands them to the run that they ask for (gpu_backend/tool).
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "core/cli/exit_code.hpp"
#include "core/cli/help.hpp"
#include "core/cli/options_file.hpp"
#include "core/cli/scenarios.hpp"
#include "gpu_backend/launch/launch_environment.hpp"
#include "gpu_backend/tool/cuda_run.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "gpu_backend/tool/run_place.hpp"
#include "gpu_backend/tool/train_run.hpp"
#include "reports/session/interrupt.hpp"
#include "reports/session/run_main.hpp"

namespace {

using namespace mfsdp;

constexpr std::string_view kTool = "mfsdp-exec";

Manual describe() { return manual_of(exec_help(), exec_flags); }

/// `args`: the command's arguments after those of its --options file.
Result<ExitCode> run_tool(const CommandLine& command, const std::vector<std::string>& args) {
  MFSDP_LET(options, parse_exec_options(args));
  if (const auto text = self_description(options.common, kTool, describe)) {
    std::cout << *text;
    return ExitCode::good;
  }
  if (!command.environment.contains("MFSDP_SUPERVISOR"))  // which has printed them already
    for (const std::string& note : options.common.notes) report_note(std::cerr, note, kTool);
  MFSDP_LET(scenarios, scenarios_dir());
  const Session session{.tool = kTool,
                        .scenarios = scenarios,
                        .out = std::cout,
                        .err = std::cerr,
                        .interrupted = interrupted(),
                        .style = style_of(describe_stdout())};
  if (options.dry_run) return dry_run(options, session);
  catch_interrupts(is_supervised(command.environment) ? "" : kStopping);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a write error that the store can record
  return train_run(options, command, session, find_cuda_run(),
                   [](ExitCode code) { std::_Exit(static_cast<int>(code)); });
}

}  // namespace

int main(int argc, char** argv) {
  const CommandLine command{.arguments = {argv, argv + argc},
                            .environment = read_environment(environ)};
  const std::vector<std::string> arguments{argv + 1, argv + argc};
  return run_main(kTool, arguments, std::cout, std::cerr, [&] {
    return with_options_file(arguments, [&](const auto& all) { return run_tool(command, all); });
  });
}
