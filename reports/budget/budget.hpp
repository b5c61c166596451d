// Limits that a run must keep, in a TOML file, so that CI notices when a plan got worse.
//
// One file is one budget. Every limit is the largest value that passes, to the byte, the nanosecond
// and the single wait:
//
//   cost_model_version = "1"        # other prices: times are not comparable, all else still is
//   plan_hash = "5940fdb7..."       # another plan is a note, never a failure
//   [memory]
//   allocated_bytes = 34779865088   # or in words that mean a whole number of bytes: "48 GiB"
//   peak_bytes = ...              # of the simulated order of streams; allocated is the plan's own
//   [memory.peak_categories]        # at the moment of the peak, as the prediction prints them
//   activation_bytes = ...          # any Category
//   [time]
//   step_ns = "820 ms"
//   exposed_communication_ns = ...
//   [traffic]                       # sent per rank and step
//   all_gather_bytes = ...          # reduce_scatter_bytes, all_reduce_bytes, total_bytes
//   [plan]
//   ops = 3500                      # events, waits
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// One limit and the line of the file that it stands on.
struct BudgetLimit {
  std::string key;        ///< "memory.allocated_bytes"
  std::int64_t most = 0;  ///< the largest value that passes, in the unit of the key's name
  std::uint32_t line = 0;
};

/// What a budget file says a run was, rather than what it may be.
struct BudgetStamp {
  std::string text;
  std::uint32_t line = 0;
};

struct Budget {
  std::string file;                               ///< as the user named it
  std::optional<BudgetStamp> cost_model_version;  ///< none: times always compare
  std::optional<BudgetStamp> plan_hash;
  std::vector<BudgetLimit> limits;  ///< by line; never empty
};

/// Reads a budget from the text of `file`. Errors name file and line: text that is not TOML, an
/// unknown key (with the closest known one), a value that is no integer from 0 to 2^63 - 1 and no
/// such text as "48 GiB", and a file without a limit.
[[nodiscard]] Result<Budget> parse_budget(std::string_view text, const std::string& file);
/// The same from the file itself.
[[nodiscard]] Result<Budget> load_budget(const std::string& file);

/// A budget that holds exactly the run's own values: the run keeps it, and nothing larger does.
[[nodiscard]] std::string budget_text(const PredictedRun& run);

enum class BudgetOutcome { within, exceeded, not_comparable };

template <>
struct Names<BudgetOutcome> {
  static constexpr std::array<std::string_view, 3> values{"within", "exceeded", "not_comparable"};
};

struct BudgetRow {
  BudgetLimit limit;
  std::int64_t value = 0;  ///< the run's
  BudgetOutcome outcome = BudgetOutcome::within;
};

struct BudgetReport {
  std::string file;
  std::vector<BudgetRow> rows;     ///< as the budget's limits
  std::vector<std::string> notes;  ///< a line each: another plan, another cost model

  [[nodiscard]] bool passes() const;  ///< nothing is exceeded
};

/// Compares each limit with the run's value; value <= limit is within. Requires a parsed budget:
/// its keys are known.
[[nodiscard]] BudgetReport check_budget(const Budget& budget, const PredictedRun& run);

/// "FILE:LINE: KEY is VALUE, EXCESS over the limit of MOST" for each limit that is exceeded.
[[nodiscard]] std::vector<std::string> exceeded_lines(const BudgetReport& report);

/// A headline, the notes, and a line for each limit in aligned columns.
[[nodiscard]] std::string render_budget_text(const BudgetReport& report);
/// The same as Markdown, for the summary of a CI job.
[[nodiscard]] std::string render_budget_markdown(const BudgetReport& report);

/// The JSON object of a result (to_json or to_json_line) with the report as its key `budget`: file,
/// passes, limits (key, line, limit, value, outcome) and notes. On one line where the result is.
[[nodiscard]] std::string add_budget(const std::string& result_json, const BudgetReport& report);

}  // namespace mfsdp
