// mfsdp-verify: reads flags and hands them to the judgement that they ask for (verify/tool).
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "core/cli/exit_code.hpp"
#include "core/cli/help.hpp"
#include "core/cli/options_file.hpp"
#include "core/cli/scenarios.hpp"
#include "gpu_backend/weights/temporary_folder.hpp"
#include "reports/session/interrupt.hpp"
#include "reports/session/run_main.hpp"
#include "verify/oracle/run_bits.hpp"
#include "verify/tool/judge.hpp"
#include "verify/tool/verify_options.hpp"

namespace {

using namespace mfsdp;

constexpr std::string_view kTool = "mfsdp-verify";

Manual describe() { return manual_of(verify_help(), verify_flags); }

/// The CPU's, which save and export to `folder`.
Machines machines_in(const std::filesystem::path& folder) {
  RunBitsSettings settings;
  settings.folder = folder;
  return {.once = [=](const Job& job) { return plain_run_bits(job, settings); },
          .shaken = [=](const Job& job) { return shaken_run_bits(job, settings); }};
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
  if (options.mutate || options.runs_mutants())  // other judgements are short
    catch_interrupts("mfsdp-verify: stopping (a second signal ends it at once)");
  if (!options.runs_mutants()) return judge(options, session, {});
  const auto beside = std::filesystem::temp_directory_path() / kTool;
  MFSDP_LET(folder, TemporaryFolder::beside(beside, beside));
  return judge(options, session, machines_in(folder.path()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments{argv + 1, argv + argc};
  return run_main(kTool, arguments, std::cout, std::cerr,
                  [&] { return with_options_file(arguments, run_tool); });
}
