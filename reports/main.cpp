// mfsdp-report: hands its arguments to the command that they name (reports/commands).
#include <iostream>
#include <string>
#include <vector>

#include "core/cli/scenarios.hpp"
#include "reports/commands/commands.hpp"
#include "reports/session/interrupt.hpp"
#include "reports/session/run_main.hpp"

namespace {

using namespace mfsdp;

constexpr std::string_view kTool = "mfsdp-report";

Result<ExitCode> run_tool(const std::vector<std::string>& args) {
  const auto scenarios = scenarios_dir();  // a store can be read without
  return run_report(args, {.tool = kTool,
                           .scenarios = scenarios.value_or(std::filesystem::path()),
                           .out = std::cout,
                           .err = std::cerr,
                           .interrupted = interrupted(),
                           .style = style_of(describe_stdout())});
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  const std::vector<std::string> arguments{argv + 1, argv + argc};
  return run_main(kTool, arguments, std::cout, std::cerr, [&] { return run_tool(arguments); });
}
