#include <fmt/format.h>

#include <algorithm>

#include "core/base/json_text.hpp"
#include "core/base/text.hpp"
#include "reports/budget/budget.hpp"
#include "reports/budget/measures.hpp"

namespace mfsdp {

bool BudgetReport::passes() const {
  return std::ranges::none_of(
      rows, [](const BudgetRow& row) { return row.outcome == BudgetOutcome::exceeded; });
}

BudgetReport check_budget(const Budget& budget, const PredictedRun& run) {
  BudgetReport report{.file = budget.file, .rows = {}, .notes = {}};
  const auto note = [&](const BudgetStamp& stamp, std::string_view what, const std::string& now,
                        std::string_view consequence) {
    report.notes.push_back(fmt::format("line {}: {} {}, now {}: {}", stamp.line, what,
                                       printable(stamp.text), printable(now), consequence));
  };
  const auto& version = budget.cost_model_version;
  const bool times_compare = !version || version->text == run.cost_model_version;
  if (!times_compare)
    note(*version, "cost model", run.cost_model_version, "times are not comparable");
  if (budget.plan_hash && budget.plan_hash->text != run.plan_hash)
    note(*budget.plan_hash, "plan", run.plan_hash, "the plan has changed");

  const std::vector<BudgetMeasure> measures = budget_measures(run);
  for (const BudgetLimit& limit : budget.limits) {
    const auto measure = std::ranges::find(measures, limit.key, &BudgetMeasure::key);
    BudgetRow row{.limit = limit, .value = measure->value};
    if (row.value > limit.most) row.outcome = BudgetOutcome::exceeded;
    if (measure->unit == MeasureUnit::nanoseconds && !times_compare)
      row.outcome = BudgetOutcome::not_comparable;
    report.rows.push_back(std::move(row));
  }
  return report;
}

std::string budget_text(const PredictedRun& run) {
  std::string text = fmt::format(
      "# What {} {} simulated of {} on {} {}: a budget for mfsdp-sim --budget.\n"
      "# Each value is the largest that passes, in bytes, nanoseconds or as a count; \"48 GiB\" "
      "and\n"
      "# \"820 ms\" are understood too. Delete the limits that should not hold.\n",
      run.tool, run.version, printable(run.model_name), run.cluster.gpus,
      printable(run.cluster.gpu));
  text += fmt::format("cost_model_version = {}  # of other versions times are not comparable\n",
                      json_literal(run.cost_model_version));
  text += fmt::format("plan_hash = {}  # a change is a note, no failure\n",
                      json_literal(run.plan_hash));
  std::string table;
  for (const BudgetMeasure& measure : budget_measures(run)) {
    if (measure.table != table) text += fmt::format("\n[{}]\n", measure.table);
    table = measure.table;
    text += fmt::format("{} = {}\n", measure.name, measure.value);
  }
  return text;
}

}  // namespace mfsdp
