// mfsdp-verify: reads flags and hands them to the judgement that they ask for (verify/tool).
#include <iostream>
#include <string>
#include <vector>

#include "core/cli/exit_code.hpp"
#include "core/cli/help.hpp"
#include "core/cli/scenarios.hpp"
#include "core/cli/verify_options.hpp"
#include "reports/tool/interrupt.hpp"
#include "reports/tool/run_main.hpp"
#include "verify/tool/judge.hpp"

namespace {

using namespace mfsdp;

constexpr std::string_view kTool = "mfsdp-verify";

std::string describe() {
  VerifyOptions unused;
  return render_help(verify_help(), verify_flags(unused));
}

Result<ExitCode> run_tool(const std::vector<std::string>& args) {
  MFSDP_LET(options, parse_verify_options(args));
  if (const auto text = self_description(options.common, kTool, describe)) {
    std::cout << *text;
    return ExitCode::good;
  }
  for (const std::string& note : options.common.notes) report_note(std::cerr, note, kTool);
  MFSDP_LET(scenarios, scenarios_dir());
  const Session session{.tool = kTool,
                        .scenarios = scenarios,
                        .out = std::cout,
                        .err = std::cerr,
                        .interrupted = interrupted(),
                        .style = style_of(describe_stdout())};
  if (options.mutate)  // other judgements are short
    catch_interrupts("mfsdp-verify: stopping (a second signal ends it at once)");
  return judge(options, session);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments{argv + 1, argv + argc};
  return run_main(kTool, arguments, std::cout, std::cerr, [&] { return run_tool(arguments); });
}
