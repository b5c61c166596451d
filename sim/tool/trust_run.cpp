#include "sim/tool/trust_run.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/text.hpp"
#include "core/cli/path_check.hpp"
#include "core/cli/table.hpp"
#include "core/cli/wrap.hpp"
#include "sim/calibrate/accuracy.hpp"
#include "sim/calibrate/calibrate.hpp"
#include "sim/calibrate/fidelity.hpp"
#include "sim/calibrate/published.hpp"
#include "sim/calibrate/trust.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

/// The first line of cells is the titles; columns from `first` to `last` are numbers.
Table table_of(const std::vector<std::vector<std::string>>& cells, std::size_t first,
               std::size_t last) {
  Table table;
  for (std::size_t column = 0; column < cells.front().size(); ++column)
    table.columns.push_back(
        {cells.front()[column], column >= first && column <= last ? Align::right : Align::left});
  table.rows.assign(cells.begin() + 1, cells.end());
  return table;
}

Table table_of(const std::vector<FidelityRow>& rows) {
  return table_of(fidelity_cells(rows), 2, 5);
}

std::string one_line(const std::string& json) { return Json::parse(json).dump() + "\n"; }

std::string calibration_json(const Calibration& calibration) {
  Json object = {{"schema", "mfsdp.calibration/1"}};
  Json values = Json::array();
  for (const FittedValue& value : calibration.values)
    values.push_back({{"key", value.key},
                      {"value", value.value},
                      {"base", value.base},
                      {"source", value.source}});
  object["values"] = std::move(values);
  object["errors"] = Json::parse(fidelity_json(calibration.errors))["rows"];
  object["notes"] = calibration.notes;
  Json files = Json::array();
  for (const CalibrationFile& file : calibration.files) files.push_back(file.path.string());
  object["files"] = std::move(files);
  return object.dump(2) + "\n";
}

std::string calibration_output(const Calibration& calibration, OutputFormat format,
                               const TextStyle& style) {
  switch (format) {
    case OutputFormat::json: return calibration_json(calibration);
    case OutputFormat::jsonl: return one_line(calibration_json(calibration));
    case OutputFormat::csv: return fidelity_csv(calibration.errors);
    case OutputFormat::md: return render_markdown_table(table_of(calibration.errors));
    case OutputFormat::text: break;
  }
  return wrap_text(calibration_text(calibration), style);
}

}  // namespace

Result<ExitCode> run_fidelity(const SimOptions& options, const Session& session) {
  MFSDP_LET(rows, fidelity(session.scenarios));
  MFSDP_LET(runs, load_own_runs(session.scenarios / "fidelity"));
  const std::vector<AccuracyRow> ours = accuracy(runs);
  const Table of_runs = table_of(accuracy_cells(ours), 3, 12);
  const std::vector<EngineAccuracy> engines = accuracy_of_engines(runs);
  const Table of_engines = table_of(accuracy_cells(engines), 1, 10);
  const auto json = [&] {
    Json object = Json::parse(fidelity_json(rows));
    object["engines"] = Json::parse(accuracy_json(engines));
    object["runs"] = Json::parse(accuracy_json(ours));
    return object.dump(2) + "\n";
  };
  switch (options.common.output) {
    case OutputFormat::text:
      session.out << render_table(table_of(rows), session.style) << "\n"
                  << render_table(of_runs, session.style) << "\n"
                  << render_table(of_engines, session.style) << "\n"
                  << wrap_text(memory_trust_text(), session.style) << "\n";
      break;
    case OutputFormat::md:
      session.out << render_markdown_table(table_of(rows)) << "\n"
                  << render_markdown_table(of_runs) << "\n"
                  << render_markdown_table(of_engines);
      break;
    case OutputFormat::csv: session.out << fidelity_csv(rows); break;
    case OutputFormat::json: session.out << json(); break;
    case OutputFormat::jsonl: session.out << one_line(json()); break;
  }
  return ExitCode::good;
}

Result<ExitCode> run_published(const SimOptions& options, const Session& session) {
  const OutputFormat format = options.common.output;
  if (format == OutputFormat::csv)
    return fail("--output", "contradicts --published; ask for text, md, json or jsonl");
  MFSDP_LET(published, published_runs(session.scenarios, options.tables));
  const std::vector<std::vector<std::string>> cells = published_cells(published);
  constexpr std::size_t kFirstNumber = 4;
  // The last column, or the last two, are text.
  const std::size_t last = cells.front().size() > 8 ? 9 : 6;
  const Table table = table_of(cells, kFirstNumber, last);
  switch (format) {
    case OutputFormat::text:
      session.out << render_table(table, session.style) << "\n" << published_summary(published);
      break;
    case OutputFormat::md:
      session.out << render_markdown_table(table) << "\n" << published_summary(published);
      break;
    case OutputFormat::csv: break;
    case OutputFormat::json: session.out << published_json(published); break;
    case OutputFormat::jsonl: session.out << one_line(published_json(published)); break;
  }
  return ExitCode::good;
}

Result<ExitCode> run_calibrate(const SimOptions& options, const Session& session) {
  const CommonOptions& common = options.common;
  const std::string stem = std::filesystem::path(common.gpu).stem().string();
  const std::string output = options.calibrate_out.value_or(stem + "_calibrated.toml");
  if (!options.calibrate_out && std::filesystem::exists(output))
    return fail("--calibrate-out", fmt::format("is missing, and {} exists: name the file to write, "
                                               "or remove that one",
                                               printable(output)));
  ToolFiles files{.read = {}, .written = {{"--calibrate-out", output}}};
  for (const std::string& file : options.calibrate) files.read.push_back({"--calibrate", file});
  MFSDP_TRY(check_paths(common, session.scenarios, files));
  MFSDP_LET(calibration, calibrate({.files = {options.calibrate.begin(), options.calibrate.end()},
                                    .gpu = common.gpu,
                                    .gpus_dir = session.scenarios / "gpus",
                                    .output = output,
                                    .domain = common.gpus_per_node}));
  MFSDP_TRY(write_calibration(calibration));
  session.out << calibration_output(calibration, common.output, session.style);
  return ExitCode::good;
}

}  // namespace mfsdp
