// A budget's report as continuous integration takes it.
#pragma once

#include <string>
#include <vector>

#include "reports/budget/budget.hpp"

namespace mfsdp {

/// What each limit that did not simply pass is to GitHub: "::error file=F,line=L,title=T::TEXT", a
/// warning where it is inconclusive, a notice where it improved. %, CR and LF are escaped in all of
/// it, ":" and "," in file and title too.
[[nodiscard]] std::vector<std::string> github_annotations(const BudgetReport& report);

/// JUnit's XML: a test case for each limit. Failures are what fails under the report's policy; what
/// is inconclusive without --strict is skipped.
[[nodiscard]] std::string junit_xml(const BudgetReport& report);

/// SARIF 2.1.0: a result for each limit that did not simply pass, at its line of the budget.
[[nodiscard]] std::string sarif_json(const BudgetReport& report, const std::string& version);

/// Bencher's metric format: {"BENCHMARK": {"MEASURE": {"value": ...}}}; samples have their range as
/// lower_value and upper_value. What the run does not say is left out.
[[nodiscard]] std::string bmf_json(const BudgetReport& report, const std::string& benchmark);

/// github-action-benchmark's customSmallerIsBetter: [{"name", "unit", "value", "range"}]. What
/// should be large is left out: such a file has one direction, and rates follow from times.
[[nodiscard]] std::string action_benchmark_json(const BudgetReport& report,
                                                const std::string& benchmark);

}  // namespace mfsdp
