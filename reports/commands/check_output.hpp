// Outputs of `check` beside its report: files and annotations for continuous integration.
#pragma once

#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "core/cli/common_options.hpp"
#include "core/cli/flags.hpp"
#include "reports/budget/budget.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

enum class CiSystem { github };
constexpr auto value_names(CiSystem) { return name_array("github"); }

struct CheckFiles {
  std::optional<CiSystem> ci;
  std::optional<std::string> junit;
  std::optional<std::string> sarif;
  std::optional<std::string> bmf;
  std::optional<std::string> action_benchmark;
};

[[nodiscard]] FlagGroup check_file_flags(CheckFiles& files);

/// Whether they may be written: not over the store, the budget, or one another.
[[nodiscard]] Result<void> check_files_of(const CheckFiles& files, const std::string& db,
                                          const std::optional<std::string>& budget);

/// Writes the files that were asked for; with --ci github annotations on session.err and the
/// Markdown at the end of the file that $GITHUB_STEP_SUMMARY names.
[[nodiscard]] Result<void> write_check_files(const CheckFiles& files, const BudgetReport& report,
                                             const std::string& benchmark, const Session& session);

/// The report in the format that was asked for.
[[nodiscard]] std::string render_check(const BudgetReport& report, OutputFormat format,
                                       const TextStyle& style);

/// The measures that a budget can limit: keys, units, direction, method of comparison.
[[nodiscard]] std::string render_measures(OutputFormat format, const TextStyle& style);

}  // namespace mfsdp
