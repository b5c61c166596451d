#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/base/json_text.hpp"
#include "core/base/text.hpp"
#include "reports/budget/budget.hpp"
#include "reports/budget/stamps.hpp"

namespace mfsdp {
namespace {

std::string_view remark_on(const std::string& stamp) {
  if (stamp == "tokens_per_step") return "  # of one rank";
  if (stamp == "global_tokens_per_step") return "  # of all ranks";
  if (stamp == "cost_model_version") return "  # of other versions times are not comparable";
  if (stamp == "plan_hash") return "  # a change is a note, no failure";
  return "";
}

std::string head_of(const RunResult& run) {
  return fmt::format(
      "# What {} {} {} of {} on {} {}: a budget for mfsdp-sim --budget and\n"
      "# mfsdp-report check.",
      run.tool, run.version, run.source(), printable(run.model_name), run.cluster.gpus,
      printable(run.cluster.gpu));
}

std::string stamps_text(const RunResult& run) {
  std::string text;
  const std::vector<BudgetStamp> stamps = stamps_of(run);
  for (const BudgetStamp& stamp : stamps) {
    const auto kind = std::ranges::find(stamp_kinds(), stamp.key, &StampKind::key);
    text +=
        fmt::format("{} = {}{}\n", stamp.key, kind->integer ? stamp.text : json_literal(stamp.text),
                    remark_on(stamp.key));
  }
  return text;
}

/// measures(), then those of the run's classes.
std::vector<Measure> measures_of(const RunResult& run) {
  std::vector<Measure> all = measures();
  for (Measure& measure : class_measures(run)) all.push_back(std::move(measure));
  return all;
}

/// Tables of the golden measures; `value_text` writes what follows the equals sign. Where that is
/// nothing, the measure is left out.
std::string limits_text(const RunResult& run, auto value_text) {
  std::string text;
  std::string table;
  for (const Measure& measure : measures_of(run)) {
    const std::optional<Figure> value = measure.golden ? measure.read(run) : std::nullopt;
    if (!value) continue;
    const std::string written = value_text(measure, *value);
    if (written.empty()) continue;
    if (measure.table() != table) text += fmt::format("\n[{}]\n", measure.table());
    table = measure.table();
    text += fmt::format("{} = {}\n", measure.name(), written);
  }
  return text;
}

std::string expected_text(const Figure& value, const std::string& tolerance) {
  return fmt::format("{{ expected = {}, tolerance = {} }}", exact_text(value),
                     json_literal(tolerance));
}

/// The figures of a machine's times that a check of the run itself can judge.
struct Judged {
  std::map<std::string, Figure> figures = {};  ///< by the measure's key, as the check takes them
  std::string left_out = {};                   ///< a comment for each that it cannot
};

/// Holds the run against its own figures: what does not even pass there is no golden value, such as
/// one of too few samples or of more noise than the tolerance.
Judged judged_by_itself(const RunResult& run, const std::string& tolerance) {
  Judged judged;
  for (const Measure& measure : measures_of(run)) {
    if (!measure.golden || measure.nature != Nature::timed || !measure.read(run)) continue;
    Figure value = *measure.read(run);
    std::string why;
    for (const bool is_settled : {false, true}) {  // the check's own figure, then its verdict
      const auto budget = parse_budget(fmt::format("[{}]\n{} = {}\n", measure.table(),
                                                   measure.name(), expected_text(value, tolerance)),
                                       "golden value");
      if (!budget) break;  // of the tolerance, which the caller checks
      const BudgetRow row = check_budget(*budget, {&run, 1}).rows.front();
      if (!row.value) break;
      value = *row.value;
      if (!is_settled) continue;
      why = row.why;
      if (row.verdict == Verdict::pass) judged.figures.emplace(measure.key, value);
    }
    if (!judged.figures.contains(measure.key))
      judged.left_out += fmt::format("# Without {}: {}.\n", measure.key, why);
  }
  return judged;
}

}  // namespace

std::string budget_text(const RunResult& run) {
  return head_of(run) +
         " Each value is the largest that passes, in bytes,\n"
         "# nanoseconds or as a count; \"48 GiB\" and \"820 ms\" are understood too. Delete the\n"
         "# limits that should not hold.\n" +
         stamps_text(run) +
         limits_text(run, [](const Measure&, const Figure& value) { return exact_text(value); });
}

std::string golden_text(const RunResult& run, const std::string& tolerance) {
  const Measured* measured = run.measured();
  Judged judged;
  if (measured != nullptr) judged = judged_by_itself(run, tolerance);
  std::string text =
      head_of(run) +
      " What is worse than expected fails, what is better is improved:\n"
      "# write the file anew then, and review the difference.\n" +
      judged.left_out + stamps_text(run) +
      limits_text(run, [&](const Measure& measure, const Figure& value) -> std::string {
        if (measured == nullptr || measure.nature != Nature::timed)
          return fmt::format("{{ expected = {} }}", exact_text(value));
        const auto found = judged.figures.find(measure.key);
        return found == judged.figures.end() ? "" : expected_text(found->second, tolerance);
      });
  if (measured == nullptr) return text;
  const auto with_loss =
      std::ranges::find_if(measured->steps.rbegin(), measured->steps.rend(),
                           [](const StepResult& step) { return step.loss.has_value(); });
  if (with_loss != measured->steps.rend())
    text += fmt::format("\n[loss]\n{} = {{ expected = {}, tolerance = {} }}\n", with_loss->step,
                        exact_text(*with_loss->loss), json_literal(tolerance));
  return text;
}

}  // namespace mfsdp
