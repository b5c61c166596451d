// A budget's report as continuous integration takes it.
#pragma once

#include <string>
#include <vector>

#include "reports/budget/budget.hpp"

namespace mfsdp {

/// GitHub annotations of the limits that did not simply pass: "::error
/// file=F,line=L,title=T::TEXT", a warning if the verdict is inconclusive, a notice if it improved.
/// %, CR and LF are escaped everywhere, ":" and "," in file and title too.
[[nodiscard]] std::vector<std::string> github_annotations(const BudgetReport& report);

/// JUnit's XML: a test case for each limit. Failures are what fails under the report's policy; what
/// is inconclusive without --strict is skipped.
[[nodiscard]] std::string junit_xml(const BudgetReport& report);

/// SARIF 2.1.0: a result for each limit that did not simply pass, at its line of the budget.
[[nodiscard]] std::string sarif_json(const BudgetReport& report, const std::string& version);

/// Bencher's metric format: {"BENCHMARK": {"MEASURE": {"value": ...}}}; samples have their range as
/// lower_value and upper_value. Figures that the run lacks are left out.
[[nodiscard]] std::string bmf_json(const BudgetReport& report, const std::string& benchmark);

/// github-action-benchmark's customSmallerIsBetter: [{"name", "unit", "value", "range"}]. Figures
/// of which more is better are left out: such a file has one direction, and rates follow from
/// times.
[[nodiscard]] std::string action_benchmark_json(const BudgetReport& report,
                                                const std::string& benchmark);

}  // namespace mfsdp
