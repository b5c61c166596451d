// Arbitrary bytes as a budget: an error of one line, or a budget that a run can be checked against.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "reports/budget/budget.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto budget = parse_budget(text, "budget.toml");
  if (!budget) {
    const std::string message = budget.error().message();
    if (!message.starts_with("budget.toml")) std::abort();
    if (message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  PredictedRun run;
  const auto checked = [&] {
    const RunResult result(run);
    return check_budget(*budget, {&result, 1}, {&result, 1});
  };
  if (checked().rows.empty()) std::abort();
  run.time.step = run.time.median_step = Nanos(INT64_MAX);
  run.memory.allocated = Bytes(INT64_MAX);
  const BudgetReport report = checked();
  for (const std::string& line : failure_lines(report))
    if (line.find('\n') != std::string::npos) std::abort();
  if (render_budget_text(report).empty()) std::abort();
  return 0;
}
