#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "reports/budget/budget.hpp"
#include "reports/budget/stamps.hpp"
#include "reports/record/step_figures.hpp"
#include "reports/statistics/blocks.hpp"
#include "reports/statistics/sample.hpp"

namespace mfsdp {
namespace {

using Runs = std::span<const RunResult>;

// ---- one side's figures
// --------------------------------------------------------------------------

/// The known values of a measure on one side: one exact figure, or samples that vary.
struct Evidence {
  std::optional<Figure> figure;  ///< the worst of several runs; of samples their median
  std::vector<double> samples;   ///< empty: the figure is exact
  bool of_steps = false;         ///< the samples are blocks of steps, else whole runs
};

bool is_worse(const Measure& measure, const Figure& a, const Figure& b) {
  return measure.better == Better::lower ? is_less(b, a) : is_less(a, b);
}

bool varies(const Measure& measure, Runs runs) {
  return measure.nature == Nature::timed &&
         std::ranges::any_of(runs, [](const RunResult& run) { return run.measured() != nullptr; });
}

/// The means of blocks, which show the random error of the median step, scaled so that their median
/// is the median step.
std::vector<double> block_samples(std::span<const double> steps) {
  std::vector<double> means = blocks_of(steps).means;
  const double middle = means.empty() ? 0 : median_of(means);
  if (middle == 0) return means;
  const double scale = *settled_median(steps) / middle;
  for (double& mean : means) mean *= scale;
  return means;
}

/// Each run is a sample, or (`by_steps`) each block of steps where there are fewer than five runs.
void add_samples(const Measure& measure, Runs runs, bool by_steps, Evidence& evidence) {
  by_steps = by_steps && runs.size() < kFewestSamples;
  std::vector<double>& samples = evidence.samples;
  for (const RunResult& run : runs) {
    const std::vector<double> steps = steps_of(measure, run);
    std::vector<double> blocks = block_samples(steps);
    // Rates too: they follow from the step, not from the mean of single rates.
    for (double& block : blocks) block = value_at_step(measure, run, block);
    if (by_steps && !blocks.empty()) {
      evidence.of_steps = true;
      samples.insert(samples.end(), blocks.begin(), blocks.end());
      continue;
    }
    const std::optional<Figure> whole = measure.read(run);
    if (!blocks.empty())
      samples.push_back(value_at_step(measure, run, *settled_median(steps)));
    else if (whole)
      samples.push_back(real_of(*whole));
  }
  std::erase_if(samples, [](double sample) { return !std::isfinite(sample); });
}

Figure as_figure(const Measure& measure, double value) {
  const bool whole = measure.unit == MeasureUnit::bytes ||
                     measure.unit == MeasureUnit::nanoseconds || measure.unit == MeasureUnit::count;
  if (whole) return static_cast<std::int64_t>(std::llround(value));
  return value;
}

Evidence evidence_of(const Measure& measure, Runs runs, bool by_steps) {
  Evidence evidence;
  if (varies(measure, runs)) {
    add_samples(measure, runs, by_steps, evidence);
    if (!evidence.samples.empty())
      evidence.figure = as_figure(measure, median_of(evidence.samples));
    return evidence;
  }
  for (const RunResult& run : runs) {
    const std::optional<Figure> figure = measure.read(run);
    if (!figure || !std::isfinite(real_of(*figure))) return {};
    if (!evidence.figure || is_worse(measure, *figure, *evidence.figure)) evidence.figure = figure;
  }
  return evidence;
}

// ---- bounds
// --------------------------------------------------------------------------------------

/// The figure and the difference, upwards or downwards; never below 0.
Figure moved(const Figure& from, const std::optional<Difference>& by, bool upwards) {
  if (!by) return from;
  const auto* whole = std::get_if<std::int64_t>(&from);
  if (whole == nullptr) {
    const double amount = by->share ? *by->share * std::fabs(real_of(from)) : real_of(by->amount);
    return std::max(0.0, real_of(from) + (upwards ? amount : -amount));
  }
  const double share = by->share ? *by->share * static_cast<double>(*whole) : 0;
  const std::int64_t amount = !by->share     ? std::get<std::int64_t>(by->amount)
                              : share < 9e18 ? static_cast<std::int64_t>(share)
                                             : INT64_MAX;
  if (!upwards) return std::max<std::int64_t>(0, *whole - amount);
  return *whole > INT64_MAX - amount ? INT64_MAX : *whole + amount;
}

void set_bounds(BudgetRow& row, const std::optional<Figure>& low,
                const std::optional<Figure>& high) {
  const bool lower = row.limit.measure.better == Better::lower;
  row.worst = lower ? high : low;
  row.best = lower ? low : high;
}

void bound_by_values(BudgetRow& row) {
  const Limit& limit = row.limit;
  if (limit.expected)
    set_bounds(row, moved(*limit.expected, limit.tolerance, false),
               moved(*limit.expected, limit.tolerance, true));
  else
    set_bounds(row, limit.least, limit.most);
}

// ---- verdicts
// ------------------------------------------------------------------------------------

void judge_exactly(BudgetRow& row) {
  const Measure& measure = row.limit.measure;
  if (row.worst && is_worse(measure, *row.value, *row.worst))
    row.verdict = Verdict::fail;
  else if (row.best && is_worse(measure, *row.best, *row.value))
    row.verdict = Verdict::improved;
}

void judge_samples(BudgetRow& row, const Evidence& run, const Evidence& baseline) {
  const Better better = row.limit.measure.better;
  row.samples = run.samples.size();
  row.of_steps = run.of_steps;
  const MedianRange range = median_range(run.samples, kRangeRisk);
  if (range.known) row.range = range;
  if (row.against_baseline) {
    row.baseline_samples = baseline.samples.size();
    const double tolerance = std::fabs(real_of(*row.worst) - real_of(*row.baseline));
    row.statistics = judge_difference(baseline.samples, run.samples, tolerance, better);
  } else {
    const auto real = [](const std::optional<Figure>& figure) {
      return figure ? std::optional<double>(real_of(*figure)) : std::nullopt;
    };
    row.statistics = judge_limit(run.samples, real(row.worst), real(row.best), better);
  }
  row.verdict = row.statistics->verdict;
  row.why = row.statistics->why;
}

/// Why that run cannot stand for its program; none where it can.
std::optional<std::string> unfinished(Runs runs, std::string_view what) {
  for (const RunResult& run : runs) {
    if (run.status == RunStatus::running)
      return fmt::format("{} still goes on, or was killed", what);
    if (run.status == RunStatus::failed) return fmt::format("{} failed", what);
  }
  return std::nullopt;
}

void judge(BudgetRow& row, Runs runs, Runs baseline, const BudgetPolicy& policy) {
  const bool by_steps = policy.by_steps || !row.against_baseline;
  const Evidence now = evidence_of(row.limit.measure, runs, by_steps);
  const Evidence before =
      row.against_baseline ? evidence_of(row.limit.measure, baseline, by_steps) : Evidence{};
  row.value = now.figure;
  row.baseline = before.figure;
  const auto not_comparable = [&](std::string why) {
    row.verdict = Verdict::not_comparable;
    row.why = std::move(why);
  };
  if (const auto why = unfinished(runs, "the run")) return not_comparable(*why);
  if (!now.figure) return not_comparable("the run does not have this figure");
  if (row.against_baseline) {
    if (const auto why = unfinished(baseline, "the baseline")) return not_comparable(*why);
    if (baseline.empty()) return not_comparable("no baseline was named");
    if (!before.figure) return not_comparable("the baseline does not have this figure");
    if (now.samples.empty() != before.samples.empty())
      return not_comparable("one side is simulated, the other measured");
    set_bounds(row, moved(*before.figure, row.limit.worse_by, false),
               moved(*before.figure, row.limit.worse_by, true));
  }
  if (now.samples.empty()) return judge_exactly(row);
  judge_samples(row, now, before);
  if (!by_steps && std::min(runs.size(), baseline.size()) < kFewestSamples)
    row.why = fmt::format(
        "{} run{} against {}: runs of one program differ, so {} a side are needed (several RUNs, "
        "--baseline repeatedly), or --by-steps",
        runs.size(), runs.size() == 1 ? "" : "s", baseline.size(), kFewestSamples);
}

/// The worst effect of the mismatches, of a budget's stamps or a baseline's.
Breaks worst_of(std::span<const StampMismatch> found, BudgetReport& report) {
  Breaks worst = Breaks::nothing;
  for (const StampMismatch& mismatch : found) {
    std::string note = mismatch_text(mismatch);
    if (std::ranges::find(report.notes, note) == report.notes.end())
      report.notes.push_back(std::move(note));
    worst = std::max(worst, mismatch.breaks);
  }
  return worst;
}

bool is_broken(Breaks breaks, const Measure& measure) {
  return breaks == Breaks::everything ||
         (breaks == Breaks::times && measure.nature == Nature::timed);
}

/// Adds why the measure is not comparable: "GPUs 2, now 4; engine mfsdp, now fsdp2".
void add_differences(std::span<const BudgetStamp> stamps, Runs runs, const Measure& measure,
                     std::string& differs) {
  for (const RunResult& run : runs)
    for (const StampMismatch& mismatch : mismatches(stamps, run)) {
      const std::string text = difference_text(mismatch);
      if (!is_broken(mismatch.breaks, measure) || differs.find(text) != std::string::npos) continue;
      differs += (differs.empty() ? "" : "; ") + text;
    }
}

}  // namespace

std::vector<JudgedRun> judged_runs(Runs runs) {
  std::vector<JudgedRun> judged;
  for (const RunResult& run : runs)
    judged.push_back({.run_id = run.run_id, .name = run.name, .source = std::string(run.source())});
  return judged;
}

std::size_t BudgetReport::count(Verdict verdict) const {
  return static_cast<std::size_t>(std::ranges::count(rows, verdict, &BudgetRow::verdict));
}

Verdict BudgetReport::verdict() const {
  for (const Verdict verdict :
       {Verdict::fail, Verdict::not_comparable, Verdict::inconclusive, Verdict::improved})
    if (count(verdict) > 0) return verdict;
  return Verdict::pass;
}

bool passes(const BudgetReport& report) {
  const BudgetPolicy& policy = report.policy;
  if (report.count(Verdict::fail) > 0) return false;
  if (report.count(Verdict::not_comparable) > 0 && !policy.allow_incomparable) return false;
  return report.count(Verdict::inconclusive) == 0 || !policy.strict;
}

BudgetReport check_budget(const Budget& budget, Runs runs, Runs baseline,
                          const BudgetPolicy& policy) {
  BudgetReport report{.file = budget.file, .rows = {}, .notes = {}, .policy = policy};
  Breaks of_file = Breaks::nothing;
  for (const RunResult& run : runs)
    of_file = std::max(of_file, worst_of(mismatches(budget.stamps, run), report));
  Breaks of_baseline = Breaks::nothing;
  const bool relative =
      std::ranges::any_of(budget.limits, [](const Limit& l) { return l.worse_by.has_value(); });
  if (!baseline.empty() && relative)
    for (const RunResult& run : runs)
      for (const RunResult& other : baseline)
        of_baseline = std::max(of_baseline, worst_of(mismatches(stamps_of(other), run), report));

  const bool named =
      std::ranges::find(budget.stamps, "model", &BudgetStamp::key) != budget.stamps.end();
  const bool absolute = std::ranges::any_of(
      budget.limits, [](const Limit& l) { return l.most || l.least || l.expected; });
  if (!named && absolute)
    report.notes.emplace_back("names no model: whether it is of this one was not checked");

  const auto add = [&](const Limit& limit, bool against_baseline) {
    BudgetRow row;
    row.limit = limit;
    row.against_baseline = against_baseline;
    if (!against_baseline) bound_by_values(row);
    judge(row, runs, baseline, policy);
    const Breaks breaks = against_baseline ? std::max(of_file, of_baseline) : of_file;
    if (is_broken(breaks, limit.measure)) {
      row.verdict = Verdict::not_comparable;
      row.why = "another model, cluster or cost model";
      add_differences(budget.stamps, runs, limit.measure, row.differs);
      if (against_baseline)
        for (const RunResult& other : baseline)
          add_differences(stamps_of(other), runs, limit.measure, row.differs);
      row.statistics.reset();
    }
    report.rows.push_back(std::move(row));
  };
  for (const Limit& limit : budget.limits) {
    if (limit.most || limit.least || limit.expected) add(limit, false);
    if (limit.worse_by) add(limit, true);
  }
  return report;
}

}  // namespace mfsdp
