// Limits that a run must keep, in a TOML file, so that CI notices when memory or speed got worse.
//
// One file is one budget, for `mfsdp-sim --budget` and `mfsdp-report check` alike. It begins with
// stamps that describe the run. A budget of another model, cluster or cost model is not comparable,
// which fails:
//
//   model = "llama3_8b"             # budget_stamps.cpp has the list, and what each is good for
//   cost_model_version = "1"        # other prices: times are not comparable, all else still is
//   plan_hash = "5940fdb7..."       # another plan is a note, never a failure
//
// Then the limits. The keys are those of reports/measures. A value alone is the worst that passes:
// the largest of what should be small, the smallest of what should be large.
//
//   [memory]
//   allocated_bytes = 34779865088   # or in words that mean a whole number of bytes: "48 GiB"
//   peak_bytes = { most = "33 GiB", least = "30 GiB" }     # below 30: improved
//   [memory.peak_categories]        # at the moment of the peak
//   activation_bytes = { expected = 1342177280 }           # exactly; more fails, less is improved
//   [time]
//   step_ns = { expected = "820 ms", tolerance = "2 %" }
//   mfu = 0.45                      # at least
//   tokens_per_second_per_gpu = { worse_by = "2 %" }       # than the baseline run
//   [loss]
//   100 = { most = 3.2 }            # mean training loss of step 100
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "reports/measures/measure.hpp"
#include "reports/record/result.hpp"
#include "reports/statistics/judge.hpp"
#include "reports/statistics/sample.hpp"

namespace mfsdp {

/// An amount in the measure's unit, or a part of what it is the difference from.
struct Difference {
  std::optional<double> share;  ///< "2 %" is 0.02
  Figure amount;                ///< where there is no share
};

/// One limit, with its line in the file.
struct Limit {
  Measure measure;
  std::uint32_t line = 0;
  std::optional<Figure> most;
  std::optional<Figure> least;
  std::optional<Figure> expected;       ///< instead of most and least
  std::optional<Difference> tolerance;  ///< around `expected`; none: exactly that
  std::optional<Difference> worse_by;   ///< than the baseline, at most
};

/// The description of a run in a budget file, as opposed to its limits.
struct BudgetStamp {
  std::string key;
  std::string text;
  std::uint32_t line = 0;  ///< 0: not from a file
};

/// Who that run was: the stamps that budgets are written with, in order.
[[nodiscard]] std::vector<BudgetStamp> stamps_of(const RunResult& run);

/// The figures that a stamp makes incomparable.
enum class Breaks { nothing, times, everything };
struct StampMismatch {
  BudgetStamp stamp;
  std::string now;
  Breaks breaks = Breaks::nothing;
};
/// The stamps that the run does not have.
[[nodiscard]] std::vector<StampMismatch> mismatches(std::span<const BudgetStamp> stamps,
                                                    const RunResult& run);

/// "GPUs 2, now 4".
[[nodiscard]] std::string difference_text(const StampMismatch& mismatch);

struct Budget {
  std::string file;  ///< as the user named it
  std::vector<BudgetStamp> stamps;
  std::vector<Limit> limits;  ///< by line; never empty
};

/// Reads a budget from the text of `file`. Errors name file and line. Errors are: text that is not
/// TOML, an unknown key (with the closest known one), a value that is no amount of its unit,
/// contradictory limits, and a file without a limit.
[[nodiscard]] Result<Budget> parse_budget(std::string_view text, const std::string& file);
/// The same from the file itself.
[[nodiscard]] Result<Budget> load_budget(const std::string& file);

/// A budget that holds exactly the run's own values: the run keeps it, and nothing worse does.
[[nodiscard]] std::string budget_text(const RunResult& run);
/// The same as reviewed golden values: better values are reported as improved, measured times have
/// a tolerance of `tolerance` ("2 %"), and the last step's loss is a limit too.
[[nodiscard]] std::string golden_text(const RunResult& run, const std::string& tolerance);

struct BudgetRow {
  Limit limit;
  bool against_baseline = false;  ///< `worse_by`, else the fixed values
  std::optional<Figure> worst;    ///< that passes
  std::optional<Figure> best;     ///< what is better still is improved
  std::optional<Figure> value;    ///< the run's; the median of samples
  std::optional<Figure> baseline;
  Verdict verdict = Verdict::pass;
  std::string why;          ///< of inconclusive and not comparable
  std::string differs;      ///< of another model and similar: "GPUs 2, now 4; ..."
  std::size_t samples = 0;  ///< 0: exact values were compared
  std::size_t baseline_samples = 0;
  bool of_steps = false;  ///< the samples are blocks of steps, else whole runs
  std::optional<SampleVerdict> statistics;
  std::optional<MedianRange> range;  ///< of the samples' median
};

/// Verdicts beside pass that end well.
struct BudgetPolicy {
  bool strict = false;              ///< inconclusive is a failure
  bool allow_incomparable = false;  ///< what is not comparable is none
  /// Blocks of steps are samples against a baseline too, where there are fewer than five runs a
  /// side: as if two runs of one program did not differ by more than their steps do.
  bool by_steps = false;
};

/// A run that was held against the budget, or a baseline.
struct JudgedRun {
  std::string run_id;  ///< empty: a command that left no result
  std::string name;
  std::string source;  ///< "simulated", "measured"
};
[[nodiscard]] std::vector<JudgedRun> judged_runs(std::span<const RunResult> runs);

struct BudgetReport {
  std::string file;
  std::vector<BudgetRow> rows;     ///< as the budget's limits
  std::vector<std::string> notes;  ///< a line each: another plan, another cost model
  BudgetPolicy policy = {};
  // Who they are; empty where the caller shows the run itself.
  std::vector<JudgedRun> runs = {};
  std::vector<JudgedRun> baseline = {};

  [[nodiscard]] std::size_t count(Verdict verdict) const;
  /// The one that counts most: fail, not comparable, inconclusive, improved, pass.
  [[nodiscard]] Verdict verdict() const;
};

/// Under the report's policy.
[[nodiscard]] bool passes(const BudgetReport& report);

/// Compares each limit with the runs' values. `runs` are samples of one program, at least one;
/// `baseline` likewise, or none. Values that do not vary (memory, plans, simulated times) are
/// compared exactly, the worst of several runs; times that a machine took by statistics/judge.hpp.
/// Against a baseline each run is a sample: blocks of one run resemble each other, but two runs of
/// one program differ by more than that. Against fixed values each run is one where there are five,
/// else each block of steps. A run that did not end, or failed, is not comparable.
[[nodiscard]] BudgetReport check_budget(const Budget& budget, std::span<const RunResult> runs,
                                        std::span<const RunResult> baseline = {},
                                        const BudgetPolicy& policy = {});

/// "at most 32.38 GiB", "820.00 ms +- 2 %", "baseline + 2 %". All digits where the run's value
/// would look the same: "at most 2,916,943,359 B".
[[nodiscard]] std::string bound_text(const BudgetRow& row);
/// The same to the last digit, without units: "at most 34768170496".
[[nodiscard]] std::string exact_bound_text(const BudgetRow& row);
/// "pass", "fail: 1 B over", "improved: 2.0 % better", "inconclusive: 1 sample ...".
[[nodiscard]] std::string verdict_text(const BudgetRow& row);

/// "Allocated memory 43.38 GiB, limit 32.38: 11.00 GiB (34.0 %) over", of a limit that failed.
[[nodiscard]] std::string excess_sentence(const BudgetRow& row);

/// "FILE:LINE: " and the excess for each limit that failed, and a line for each reason why others
/// are not comparable.
[[nodiscard]] std::vector<std::string> failure_lines(const BudgetReport& report);

/// A headline, the notes, and a line for each limit in aligned columns.
[[nodiscard]] std::string render_budget_text(const BudgetReport& report);
/// The same as Markdown, for the summary of a CI job.
[[nodiscard]] std::string render_budget_markdown(const BudgetReport& report);
/// One object: file, verdict, passes, limits and notes; on one line or several.
[[nodiscard]] std::string render_budget_json(const BudgetReport& report, bool one_line);
/// A header and a line for each limit.
[[nodiscard]] std::string render_budget_csv(const BudgetReport& report);

/// The JSON object of a result (to_json or to_json_line) with the report as its key `budget`. On
/// one line where the result is.
[[nodiscard]] std::string add_budget(const std::string& result_json, const BudgetReport& report);

}  // namespace mfsdp
