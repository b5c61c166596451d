// mfsdp-verify: reads flags and hands them to the judgement that they ask for (verify/tool).
#include <csignal>
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
  MFSDP_LET(scenarios, scenarios_dir());
  const Session session{.tool = kTool,
                        .scenarios = scenarios,
                        .out = std::cout,
                        .err = std::cerr,
                        .interrupted = interrupted()};
  if (options.mutate) catch_interrupts({SIGINT});  // other judgements are short
  return judge(options, session);
}

}  // namespace

int main(int argc, char** argv) {
  return run_main(kTool, std::cout, std::cerr, [&] { return run_tool({argv + 1, argv + argc}); });
}
