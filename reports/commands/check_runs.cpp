#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/text.hpp"
#include "reports/budget/budget.hpp"
#include "reports/commands/check_output.hpp"
#include "reports/commands/commands.hpp"
#include "reports/commands/sample_commands.hpp"
#include "reports/session/interrupt.hpp"
#include "reports/store/find_runs.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kMostSamples = 1000;

struct CheckOptions : ReportOptions {
  std::optional<std::string> budget;
  std::vector<std::string> baselines;
  std::optional<std::string> run;
  std::optional<std::string> against;
  std::int64_t samples = 5;
  std::string tolerance = "2 %";
  bool list_measures = false;
  BudgetPolicy policy;
  CheckFiles files;
};

std::vector<FlagGroup> check_flags(CheckOptions& o) {
  const auto text = [](const std::string& name, std::string value, std::string help,
                       std::optional<std::string>& target) {
    return bound_flag(name, std::move(value), std::move(help), target, parse_text);
  };
  const Flag baseline{.name = "--baseline",
                      .value = "RUN",
                      .help =
                          "what worse_by is the difference from (@baseline); several are samples "
                          "of one program",
                      .apply = [&o](const std::string& word) -> Result<void> {
                        MFSDP_LET(name, parse_text(word, "--baseline"));
                        o.baselines.push_back(std::move(name));
                        return {};
                      },
                      .repeatable = true};
  return {{.title = "Checked values",
           .flags = {path_flag("--budget", "limits in TOML (docs/reference/budgets.md)", o.budget),
                     baseline,
                     text("--run", "COMMAND", "take the results that this command prints", o.run),
                     text("--against", "COMMAND",
                          "baseline: another command, run in turn with --run", o.against),
                     integer_flag("--samples", "runs of each command (5)", o.samples,
                                  {.lowest = 1, .highest = kMostSamples}),
                     text_flag("--tolerance", "X",
                               "worse_by of the step where there is no budget (2 %)", o.tolerance),
                     switch_flag("--list-measures", "what a budget can limit", o.list_measures)}},
          {.title = "Failures",
           .flags = {switch_flag("--strict", "what is inconclusive", o.policy.strict),
                     switch_flag("--by-steps",
                                 "what the steps of fewer than five measured runs a side show",
                                 o.policy.by_steps),
                     switch_flag("--allow-incomparable",
                                 "not what is of another model, cluster or cost model",
                                 o.policy.allow_incomparable)}},
          check_file_flags(o.files),
          filter_flags(o),
          store_flags(o)};
}

HelpText check_help() {
  return {.tool = "mfsdp-report check",
          .purpose = "Holds runs against a budget. Several RUNs are samples of one program.",
          .examples = {{"mfsdp-report check --budget limits.toml", "the latest run"},
                       {"mfsdp-report check 3fa9 --budget limits.toml --baseline @best", "a pair"},
                       {"mfsdp-report check --run ./new --against ./old --samples 10",
                        "two programs in turn"},
                       {"mfsdp-report check --budget limits.toml --ci github", "in a workflow"}},
          .negative = "a limit fails or is not comparable (--strict: or open)"};
}

/// Without a file two commands are compared by their steps, and by the memory that they report.
Result<Budget> budget_of_two_commands(const CheckOptions& options, bool timed) {
  std::string tolerance = printable(options.tolerance);
  std::erase_if(tolerance, [](char c) { return c == '"' || c == '\\'; });
  std::string text;
  if (!timed) text += "[memory]\nallocated_bytes = { worse_by = 0 }\n";
  text += fmt::format("[time]\nmedian_step_ns = {{ worse_by = \"{}\" }}\n", tolerance);
  auto budget = parse_budget(text, "default limits");
  if (!budget)
    return fail("--tolerance", in_quotes(options.tolerance) + " is not a part such as \"2 %\"");
  return budget;
}

Result<void> check_choices(const CheckOptions& o) {
  if (o.run && !o.words.empty()) return fail("--run", "contradicts RUN: give one or the other");
  if (o.against && !o.run) return fail("--against", "needs --run, the command to compare with");
  if (o.against && !o.baselines.empty())
    return fail("--against", "contradicts --baseline: give one or the other");
  if (!o.budget && !o.against)
    return fail("--budget",
                "is missing: name a TOML file of limits, or two commands (--run, "
                "--against)");
  return {};
}

/// One side each; no baseline where none was named and none is needed.
struct CheckedRuns {
  std::vector<RunResult> runs;
  std::vector<RunResult> baseline;
};

bool needs_baseline(const Budget& budget) {
  return std::ranges::any_of(budget.limits, [](const Limit& l) { return l.worse_by.has_value(); });
}

/// Samples are runs of their own.
Result<void> check_differ(const std::vector<RunResult>& runs, const char* flag) {
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (runs[i].run_id == runs[j].run_id)
        return fail(flag, fmt::format("run {} is there twice: each run is one sample",
                                      printable(runs[i].run_id)));
  return {};
}

constexpr LoadedParts kCheckedParts{.timeline = false, .steps = true, .launches = false};

/// The runs that --baseline names. `like`: what @best and marks have to be like.
Result<std::vector<RunResult>> named_baselines(Store& store, const CheckOptions& options,
                                               const RunFilter& filter, const StoredRun* like) {
  std::vector<RunResult> runs;
  for (const std::string& word : options.baselines) {
    MFSDP_LET(found, find_run(store, word, filter, like));
    MFSDP_LET(loaded, store.load(found.id, kCheckedParts));
    runs.push_back(std::move(loaded));
  }
  MFSDP_TRY(check_differ(runs, "--baseline"));
  return runs;
}

Result<CheckedRuns> stored_runs(const CheckOptions& options, const Budget& budget,
                                const Session& session) {
  MFSDP_LET(store, open_store(options));
  const std::vector<std::string> words =
      options.words.empty() ? std::vector<std::string>{"@latest"} : options.words;
  MFSDP_LET(found, find_runs(store, words, options.filter));
  CheckedRuns checked;
  for (const StoredRun& run : found) {
    MFSDP_LET(loaded, store.load(run.id, kCheckedParts));
    checked.runs.push_back(std::move(loaded));
  }
  MFSDP_TRY(check_differ(checked.runs, "RUN"));
  if (!options.baselines.empty()) {
    MFSDP_SET(checked.baseline, named_baselines(store, options, {}, &found.front()));
    return checked;
  }
  if (!needs_baseline(budget)) return checked;
  const auto baseline = find_run(store, "@baseline", {}, &found.front());
  if (!baseline) {
    report_note(session.err, baseline.error().message(), session.tool);
    return checked;  // which is not comparable
  }
  MFSDP_LET(loaded, store.load(baseline->id, kCheckedParts));
  checked.baseline.push_back(std::move(loaded));
  return checked;
}

/// The results of one command or two. Baselines of the store are looked for before anything runs.
Result<std::optional<CheckedRuns>> sampled_runs(const CheckOptions& options,
                                                std::optional<Budget>& budget,
                                                const Session& session) {
  std::vector<RunResult> stored;
  if (!options.baselines.empty()) {
    MFSDP_LET(store, open_store(options));
    MFSDP_SET(stored, named_baselines(store, options, options.filter, nullptr));
  }
  catch_interrupts("mfsdp-report: interrupted; ending the command");
  MFSDP_LET(
      samples,
      sample_commands({.run = *options.run, .against = options.against, .samples = options.samples},
                      session));
  if (samples.interrupted) return std::nullopt;
  if (!samples.timed) {
    MFSDP_TRY(check_differ(samples.runs, "--run"));
    MFSDP_TRY(check_differ(samples.against, "--against"));
  }
  if (!budget) MFSDP_SET(budget, budget_of_two_commands(options, samples.timed));
  return CheckedRuns{.runs = std::move(samples.runs),
                     .baseline = options.against ? std::move(samples.against) : std::move(stored)};
}

ExitCode say(const BudgetReport& report, const CheckOptions& options, const Session& session) {
  for (const std::string& line : failure_lines(report))
    session.err << session.tool << ": " << line << "\n";
  session.out << render_check(report, options.output, session.style);
  return passes(report) ? ExitCode::good : ExitCode::negative;
}

/// "llama3_8b on 64 h100, simulated".
std::string benchmark_name(const RunResult& run) {
  if (run.model_name.empty()) return "command";
  return fmt::format("{} on {} {}, {}", printable(run.model_name), run.cluster.gpus,
                     printable(run.cluster.gpu), run.source());
}

Result<ExitCode> check(const CheckOptions& options, const Session& session) {
  if (options.list_measures) {
    session.out << render_measures(options.output, session.style);
    return ExitCode::good;
  }
  MFSDP_TRY(check_choices(options));
  MFSDP_TRY(check_files_of(options.files, options.db, options.budget));
  CheckedRuns checked;
  std::optional<Budget> budget;
  if (options.budget) MFSDP_SET(budget, load_budget(*options.budget));
  if (options.run) {
    MFSDP_LET(sampled, sampled_runs(options, budget, session));
    if (!sampled) return ExitCode::interrupted;
    checked = std::move(*sampled);
  } else {
    MFSDP_SET(checked, stored_runs(options, *budget, session));
  }
  BudgetReport report = check_budget(*budget, checked.runs, checked.baseline, options.policy);
  report.runs = judged_runs(checked.runs);
  report.baseline = judged_runs(checked.baseline);
  const ExitCode code = say(report, options, session);
  MFSDP_TRY(
      write_check_files(options.files, report, benchmark_name(checked.runs.front()), session));
  return code;
}

}  // namespace

Command check_command() {
  return make_command<CheckOptions>({.name = "check",
                                     .summary = "holds runs, or two commands, against a budget",
                                     .words = {.name = "RUN"},
                                     .help = check_help,
                                     .flags = check_flags,
                                     .act = check});
}

}  // namespace mfsdp
