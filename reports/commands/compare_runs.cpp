#include <utility>

#include "reports/commands/commands.hpp"
#include "reports/commands/known_plan.hpp"
#include "reports/compare/compare.hpp"
#include "reports/store/find_runs.hpp"

namespace mfsdp {
namespace {

struct CompareOptions : ReportOptions {
  bool differences = false;
};

std::vector<FlagGroup> compare_flags(CompareOptions& o) {
  return {{.title = "Shown rows",
           .flags = {switch_flag("--differences", "only rows in which the runs differ",
                                 o.differences)}},
          filter_flags(o),
          store_flags(o)};
}

HelpText compare_help() {
  return {.tool = "mfsdp-report compare",
          .purpose = "Runs side by side: a column each, compared with the first.",
          .examples = {{"mfsdp-report compare 3fa9 @latest", "two runs"},
                       {"mfsdp-report compare @baseline @latest --differences", "what has changed"},
                       {"mfsdp-report compare sim-run gpu-run", "a prediction and its run"},
                       {"mfsdp-report compare 1 2 3 4 --output csv", "for a spreadsheet"}}};
}

Result<ExitCode> compare_stored(const CompareOptions& options, const Session& session) {
  MFSDP_LET(store, open_store(options));
  MFSDP_LET(found, find_runs(store, options.words, options.filter));
  std::vector<RunResult> runs;
  for (const StoredRun& run : found) {
    MFSDP_LET(loaded, store.load(run.id, {.timeline = true, .steps = true, .launches = false}));
    runs.push_back(std::move(loaded));
  }
  KnownPlans plans;
  const Comparison comparison =
      compare_runs(runs, [&](const RunResult& run) { return plans.of(run); });
  session.out << render_comparison(comparison, options.output, options.differences, session.style);
  return ExitCode::good;
}

}  // namespace

Command compare_command() {
  return make_command<CompareOptions>({.name = "compare",
                                       .summary = "runs side by side, a column each",
                                       .words = {.name = "RUN", .least = 2},
                                       .help = compare_help,
                                       .flags = compare_flags,
                                       .act = compare_stored});
}

}  // namespace mfsdp
