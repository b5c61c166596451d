#include <utility>

#include "core/base/text.hpp"
#include "reports/commands/commands.hpp"
#include "reports/render/output.hpp"
#include "reports/store/find_runs.hpp"

namespace mfsdp {
namespace {

std::vector<FlagGroup> show_flags(ReportOptions& options) {
  return {filter_flags(options), store_flags(options)};
}

HelpText show_help() {
  return {.tool = "mfsdp-report show",
          .purpose = "Prints results of runs in the form of the tool that made them.",
          .examples = {{"mfsdp-report show @latest", "the run that was stored last"},
                       {"mfsdp-report show 3fa9", "a run by the beginning of its run_id"},
                       {"mfsdp-report show @best --model llama3_8b --cluster h100 --kind simulated",
                        "most tokens/s per GPU"},
                       {"mfsdp-report show 12 --output json", "row 12 as its tool wrote it"}}};
}

Result<ExitCode> show(const ReportOptions& options, const Session& session) {
  MFSDP_LET(store, open_store(options));
  MFSDP_LET(found, find_runs(store, options.words, options.filter));
  std::vector<RunResult> runs;
  for (const StoredRun& run : found) {
    MFSDP_LET(loaded, store.load(run.id, {.timeline = false, .steps = true, .launches = false}));
    runs.push_back(std::move(loaded));
  }
  session.out << render_runs(runs, options.output, session.style,
                             "stored in " + printable(options.db));
  return ExitCode::good;
}

}  // namespace

Command show_command() {
  return make_command<ReportOptions>({.name = "show",
                                      .summary = "what a run came to",
                                      .words = {.name = "RUN", .least = 1},
                                      .help = show_help,
                                      .flags = show_flags,
                                      .act = show});
}

}  // namespace mfsdp
