#include "reports/commands/check_output.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/cli/help.hpp"
#include "core/cli/table.hpp"
#include "core/cli/wrap.hpp"
#include "reports/budget/ci_reports.hpp"
#include "reports/commands/output_guard.hpp"
#include "reports/measures/measure.hpp"
#include "reports/render/output.hpp"

namespace mfsdp {
namespace {

using MeasureJson = nlohmann::ordered_json;

std::string_view unit_name(MeasureUnit unit) {
  switch (unit) {
    case MeasureUnit::bytes: return "bytes";
    case MeasureUnit::nanoseconds: return "ns";
    case MeasureUnit::count: return "count";
    case MeasureUnit::fraction: return "0 to 1";
    case MeasureUnit::rate:
    case MeasureUnit::plain: break;
  }
  return "number";
}

std::string_view comparison_of(Nature nature) {
  switch (nature) {
    case Nature::planned: return "exact";
    case Nature::timed: return "exact where simulated, samples where measured";
    case Nature::trained: break;
  }
  return "as printed";
}

/// Key, unit, better, compared. Losses have a row for each table: their keys end with a step.
std::vector<std::array<std::string, 4>> measure_rows() {
  std::vector<std::array<std::string, 4>> rows;
  const auto add = [&](const Measure& measure, std::string key) {
    rows.push_back({std::move(key), std::string(unit_name(measure.unit)),
                    measure.better == Better::lower ? "less" : "more",
                    std::string(comparison_of(measure.nature))});
  };
  for (const Measure& measure : measures()) add(measure, measure.key);
  for (const std::string_view name : Names<ClassMeasure>::values) {
    const Measure measure = measure_of_class(*parse<ClassMeasure>(name), "ROLE");
    add(measure, measure.key);
  }
  for (const std::string_view table : Names<StepMeasure>::values)
    add(measure_at_step(*parse<StepMeasure>(table), 0), std::string(table) + ".STEP");
  return rows;
}

/// The file in which a workflow collects its job's summary; none outside of workflows.
std::optional<std::string> summary_file() {
  const char* path = std::getenv("GITHUB_STEP_SUMMARY");
  if (path == nullptr || *path == '\0') return std::nullopt;
  return path;
}

/// Steps before this one may have written to the file: it is added to.
Result<void> add_to_summary(const std::string& markdown) {
  const std::optional<std::string> path = summary_file();
  if (!path) return {};
  std::ofstream file(*path, std::ios::app | std::ios::binary);
  file << markdown << "\n";
  file.close();
  if (!file)
    return fail("$GITHUB_STEP_SUMMARY, " + *path,
                std::string("cannot be written: ") + std::strerror(errno), Fault::environment);
  return {};
}

}  // namespace

FlagGroup check_file_flags(CheckFiles& files) {
  return {.title = "For continuous integration",
          .flags = {
              choice_flag("--ci", "SYSTEM",
                          "github: annotations at the budget's lines, and a job summary", files.ci),
              path_flag("--junit", "write JUnit XML", files.junit),
              path_flag("--sarif", "write SARIF 2.1.0", files.sarif),
              path_flag("--bmf", "write Bencher's metric format", files.bmf),
              path_flag("--action-benchmark",
                        "write JSON for github-action-benchmark (customSmallerIsBetter)",
                        files.action_benchmark)}};
}

Result<void> check_files_of(const CheckFiles& files, const std::string& db,
                            const std::optional<std::string>& budget) {
  std::vector<OutputName> outputs;
  const auto add = [&](const char* flag, const std::optional<std::string>& path) {
    if (path) outputs.push_back({.flag = flag, .path = *path});
  };
  add("--junit", files.junit);
  add("--sarif", files.sarif);
  add("--bmf", files.bmf);
  add("--action-benchmark", files.action_benchmark);
  if (files.ci == CiSystem::github) add("$GITHUB_STEP_SUMMARY", summary_file());
  std::vector<std::string> inputs;
  if (budget) inputs.push_back(*budget);
  return check_outputs(outputs, db, inputs);
}

Result<void> write_check_files(const CheckFiles& files, const BudgetReport& report,
                               const std::string& benchmark, const Session& session) {
  if (files.junit) MFSDP_TRY(write_file_atomically(*files.junit, junit_xml(report)));
  if (files.sarif)
    MFSDP_TRY(write_file_atomically(*files.sarif, sarif_json(report, std::string(version()))));
  if (files.bmf) MFSDP_TRY(write_file_atomically(*files.bmf, bmf_json(report, benchmark)));
  if (files.action_benchmark)
    MFSDP_TRY(
        write_file_atomically(*files.action_benchmark, action_benchmark_json(report, benchmark)));
  if (files.ci != CiSystem::github) return {};
  for (const std::string& line : github_annotations(report)) session.err << line << "\n";
  return add_to_summary(render_budget_markdown(report));
}

std::string render_check(const BudgetReport& report, OutputFormat format, const TextStyle& style) {
  switch (format) {
    case OutputFormat::text: return wrap_text(render_budget_text(report), style);
    case OutputFormat::md: return render_budget_markdown(report);
    case OutputFormat::json: return render_budget_json(report, false);
    case OutputFormat::jsonl: return render_budget_json(report, true);
    case OutputFormat::csv: break;
  }
  return render_budget_csv(report);
}

std::string render_measures(OutputFormat format, const TextStyle& style) {
  const std::array<std::string, 4> titles{"key", "unit", "better", "compared"};
  Table table;
  for (const std::string& title : titles) table.columns.push_back({title});
  MeasureJson list = MeasureJson::array();
  std::string csv = "key,unit,better,compared\n";
  for (const auto& row : measure_rows()) {
    table.rows.emplace_back(row.begin(), row.end());
    MeasureJson object;
    for (std::size_t i = 0; i < row.size(); ++i) {
      object[titles.at(i)] = row.at(i);
      csv += (i == 0 ? "" : ",") + csv_field(row.at(i));
    }
    csv += "\n";
    list.push_back(std::move(object));
  }
  switch (format) {
    case OutputFormat::text: return render_table(table, style);
    case OutputFormat::md: return render_markdown_table(table);
    case OutputFormat::json: return list.dump(2) + "\n";
    case OutputFormat::jsonl: return list.dump() + "\n";
    case OutputFormat::csv: break;
  }
  return csv;
}

}  // namespace mfsdp
