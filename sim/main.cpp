// mfsdp-sim: reads flags and hands them to the action that they ask for (sim/tool).
#include <malloc.h>

#include <cstdio>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "core/cli/exit_code.hpp"
#include "core/cli/help.hpp"
#include "core/cli/options_file.hpp"
#include "core/cli/scenarios.hpp"
#include "reports/session/interrupt.hpp"
#include "reports/session/run_main.hpp"
#include "sim/tool/catalogue.hpp"
#include "sim/tool/engine_refusals.hpp"
#include "sim/tool/find_run.hpp"
#include "sim/tool/one_run.hpp"
#include "sim/tool/replay_run.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep.hpp"
#include "sim/tool/sweep_run.hpp"
#include "sim/tool/trust_run.hpp"

namespace {

using namespace mfsdp;

constexpr std::string_view kTool = "mfsdp-sim";

Result<ExitCode> act(const SweptArguments& swept, const SimOptions& options,
                     const Session& session) {
  if (options.list_models || options.list_gpus || options.list_clusters) {
    MFSDP_LET(table, catalogue(options, session));
    session.out << table;
    return ExitCode::good;
  }
  if (options.fidelity) return run_fidelity(options, session);
  if (options.published) return run_published(options, session);
  if (!options.calibrate.empty()) return run_calibrate(options, session);
  if (options.replay) return run_replay(options, session);
  MFSDP_TRY(check_engine(options, session));
  // Other work is short, or has nothing to keep.
  if (options.find || !swept.lists.empty())
    catch_interrupts("mfsdp-sim: stopping (a second signal ends it at once)");
  if (options.find) return run_find(swept, options, session);
  if (!swept.lists.empty()) return run_sweep(swept, options, session);
  return run_one(options, session);
}

Manual describe() { return manual_of(sim_help(), sim_flags); }

Result<ExitCode> run_tool(const std::vector<std::string>& args) {
  MFSDP_LET(arguments, with_all_engines(args));
  MFSDP_LET(swept, split_lists(arguments));
  MFSDP_LET(options, parse_sim_options(swept.arguments));
  if (const auto text = self_description(options.common, kTool, describe)) {
    std::cout << *text;
    return ExitCode::good;
  }
  for (const std::string& note : options.common.notes) report_note(std::cerr, note, kTool);
  MFSDP_LET(scenarios, scenarios_dir());
  return act(swept, options,
             {.tool = kTool,
              .scenarios = scenarios,
              .out = std::cout,
              .err = std::cerr,
              .interrupted = interrupted(),
              .style = style_of(describe_stdout())});
}

}  // namespace

/// A sweep builds and drops thousands of plans of some megabytes: memory that was freed is kept,
/// and taken in large pieces. A tenth of a sweep's time.
void keep_freed_memory() {
  constexpr int kNever = 1 << 30;
  constexpr int kPiece = 64 << 20;
  mallopt(M_TRIM_THRESHOLD, kNever);
  mallopt(M_MMAP_THRESHOLD, kNever);
  mallopt(M_TOP_PAD, kPiece);
}

int main(int argc, char** argv) {
  keep_freed_memory();
  try {
    std::ios::sync_with_stdio(false);
    const std::vector<std::string> arguments{argv + 1, argv + argc};
    return run_main(kTool, arguments, std::cout, std::cerr,
                    [&] { return with_options_file(arguments, run_tool); });
  } catch (const std::bad_alloc&) {
    // Streams may allocate; fputs on the unbuffered stderr does not.
    std::fputs("mfsdp-sim: memory: this machine has not enough to begin\n", stderr);
    return static_cast<int>(ExitCode::environment);
  }
}
