#include <fmt/format.h>

#include <filesystem>

#include "core/base/atomic_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "reports/budget/budget.hpp"
#include "reports/commands/check_output.hpp"
#include "reports/commands/commands.hpp"
#include "reports/commands/list_runs.hpp"
#include "reports/commands/output_guard.hpp"
#include "reports/store/find_runs.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kMark = "baseline";

enum class BaselineAction { show, set, unset, update };

constexpr auto value_names(BaselineAction) { return name_array("show", "set", "unset", "update"); }

struct BaselineOptions : ReportOptions {
  std::optional<std::string> budget;
  std::string tolerance = "2 %";
  bool dry_run = false;
  bool force = false;
};

std::vector<FlagGroup> baseline_flags(BaselineOptions& o) {
  return {
      {.title = "Output of update",
       .flags = {path_flag("--budget", "the file of golden values", o.budget),
                 text_flag("--tolerance", "X", "of what was measured (2 %)", o.tolerance),
                 switch_flag("--dry-run", "show what would change, and write nothing", o.dry_run),
                 switch_flag("--force", "replace a file that is of another model or cluster",
                             o.force)}},
      filter_flags(o),
      store_flags(o)};
}

HelpText baseline_help() {
  return {.tool = "mfsdp-report baseline",
          .purpose =
              "The run that others are held against (@baseline): one of each model, cluster "
              "and kind.",
          .examples = {{"mfsdp-report baseline show", "the runs that are baselines"},
                       {"mfsdp-report baseline set 3fa9", "makes a run the baseline"},
                       {"mfsdp-report baseline unset 3fa9", "takes the mark away"},
                       {"mfsdp-report baseline update --budget ci/golden.toml",
                        "golden values of the latest run"}}};
}

std::string run_word(const BaselineOptions& options) {
  return options.words.size() > 1 ? options.words[1] : "@latest";
}

/// A run that did not come to its end has no figures to hold others against.
Result<void> check_ended(const StoredRun& run) {
  if (run.status == to_string(RunStatus::running))
    return fail(short_name(run), "still goes on, or was killed: it is no baseline");
  if (run.status == to_string(RunStatus::failed))
    return fail(short_name(run), "failed: it is no baseline");
  return {};
}

/// Golden values of another model, cluster or kind of run are hardly meant to be replaced.
Result<void> check_is_alike(const Budget& old, const RunResult& run) {
  std::string differences;
  for (const StampMismatch& mismatch : mismatches(old.stamps, run))
    if (mismatch.breaks == Breaks::everything)
      differences += (differences.empty() ? "" : "; ") + difference_text(mismatch);
  if (differences.empty()) return {};
  return fail("--budget", fmt::format("{} is of another run: {}; --force replaces it",
                                      in_quotes(old.file), differences));
}

/// Reports the run's differences from the values in the file. Nothing if there is no such file; a
/// note if it cannot be read. Fails if it is of another model or cluster.
Result<void> say_changes(const BaselineOptions& options, const RunResult& run,
                         const Session& session) {
  if (!std::filesystem::exists(*options.budget)) {
    report_note(session.err, printable(*options.budget) + " is new", session.tool);
    return {};
  }
  MFSDP_LET(old, load_budget(*options.budget));
  if (!options.force && !options.dry_run) MFSDP_TRY(check_is_alike(old, run));
  session.out << render_check(check_budget(old, {&run, 1}), options.output, session.style);
  return {};
}

Result<ExitCode> update(const BaselineOptions& options, Store& store, const StoredRun& found,
                        const Session& session) {
  if (!options.budget)
    return fail("--budget", "is missing: name the file that the golden values are written to");
  const OutputName golden{.flag = "--budget", .path = *options.budget};
  MFSDP_TRY(check_outputs({&golden, 1}, options.db));
  MFSDP_LET(run, store.load(found.id, {.timeline = false, .steps = true, .launches = false}));
  MFSDP_TRY(say_changes(options, run, session));
  const std::string text = golden_text(run, options.tolerance);
  if (const auto read = parse_budget(text, "--tolerance"); !read)
    return fail("--tolerance", in_quotes(options.tolerance) + " is not a part such as \"2 %\"");
  if (options.dry_run) return ExitCode::good;
  MFSDP_TRY(write_file_atomically(*options.budget, text));
  MFSDP_TRY(store.mark(found.id, std::string(kMark)));
  session.err << fmt::format("{}: {} holds the values of run {}, which is @{} now\n", session.tool,
                             printable(*options.budget), short_name(found), kMark);
  return ExitCode::good;
}

Result<ExitCode> baseline(const BaselineOptions& options, const Session& session) {
  MFSDP_LET(action, parse_choice<BaselineAction>(options.words.front(), "baseline"));
  if (action != BaselineAction::update && (options.budget || options.dry_run || options.force))
    return fail(options.budget    ? "--budget"
                : options.dry_run ? "--dry-run"
                                  : "--force",
                "is for baseline update");
  if (action == BaselineAction::show && options.words.size() > 1)
    return fail("baseline show", fmt::format("takes no RUN, found {}; filters such as --model "
                                             "select the runs",
                                             in_quotes(options.words[1])));
  MFSDP_LET(store, open_store(options));
  if (action == BaselineAction::show) {
    MFSDP_LET(runs, store.list({.filter = options.filter, .mark = std::string(kMark)}));
    session.out << render_list(runs, options.output, session.style);
    return ExitCode::good;
  }
  MFSDP_LET(found, find_run(store, run_word(options), options.filter));
  if (action != BaselineAction::unset) MFSDP_TRY(check_ended(found));
  if (action == BaselineAction::update) return update(options, store, found, session);
  if (action == BaselineAction::set) {
    MFSDP_TRY(store.mark(found.id, std::string(kMark)));
    session.err << fmt::format("{}: run {} is @{} now\n", session.tool, short_name(found), kMark);
    return ExitCode::good;
  }
  MFSDP_LET(had, store.unmark(found.id, std::string(kMark)));
  if (!had) return fail(short_name(found), "is no baseline");
  session.err << fmt::format("{}: run {} is @{} no more\n", session.tool, short_name(found), kMark);
  return ExitCode::good;
}

}  // namespace

Command baseline_command() {
  return make_command<BaselineOptions>({.name = "baseline",
                                        .summary = "marks the run that others are held against",
                                        .words = {.name = "ACTION",
                                                  .least = 1,
                                                  .most = 2,
                                                  .usage = "ACTION [RUN]",
                                                  .values = {.names = names_of<BaselineAction>()}},
                                        .help = baseline_help,
                                        .flags = baseline_flags,
                                        .act = baseline});
}

}  // namespace mfsdp
