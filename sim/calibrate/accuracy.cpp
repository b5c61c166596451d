#include "sim/calibrate/accuracy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

namespace mfsdp {
namespace {

using AccuracyJson = nlohmann::ordered_json;

std::tuple<std::size_t, std::string, std::string, std::string> order_of(
    const PredictionKind& kind) {
  const std::size_t end = std::min(kind.engine.find(' '), kind.engine.size());
  const EngineKind engine = parse<EngineKind>(kind.engine.substr(0, end)).value();
  return {static_cast<std::size_t>(engine), kind.engine.substr(end), kind.gpu, model_text(kind)};
}

ErrorOfRuns error_of(const std::optional<OwnError>& step) {
  if (!step) return {};
  return {.runs = step->runs,
          .total = step->mean * static_cast<double>(step->runs),
          .worst = step->worst};
}

/// Runs, mean and worst error.
void add_cells(std::vector<std::string>& cells, const ErrorOfRuns& error) {
  const auto percent = [&](double fraction) {
    return error.runs == 0 ? "" : fmt::format("{:.2f}", 100 * fraction);
  };
  cells.push_back(error.runs == 0 ? "" : std::to_string(error.runs));
  cells.push_back(percent(error.mean()));
  cells.push_back(percent(error.worst));
}

AccuracyJson json_of(const ErrorOfRuns& error) {
  if (error.runs == 0) return nullptr;
  return {{"runs", error.runs}, {"mean_error", error.mean()}, {"worst_error", error.worst}};
}

}  // namespace

std::vector<AccuracyRow> accuracy(const OwnRuns& runs) {
  std::vector<AccuracyRow> rows;
  const auto add = [&](const PredictionKind& kind) {
    if (std::ranges::find(rows, kind, &AccuracyRow::kind) == rows.end())
      rows.push_back({.kind = kind,
                      .memory = own_memory_error(runs.memory, kind),
                      .step = own_error(runs.steps, kind)});
  };
  for (const OwnStep& run : runs.steps) add(run.kind);
  for (const OwnMemory& run : runs.memory) add(run.kind);
  std::ranges::stable_sort(rows, {}, [](const AccuracyRow& row) { return order_of(row.kind); });
  return rows;
}

std::vector<std::vector<std::string>> accuracy_cells(const std::vector<AccuracyRow>& rows) {
  std::vector<std::vector<std::string>> cells{{"engine", "models", "GPU", "allocated: runs", "%",
                                               "worst", "reserved: runs", "%", "worst",
                                               "step: runs", "%", "worst", "corrected: runs"}};
  for (const AccuracyRow& row : rows) {
    std::vector<std::string> line{engine_text(row.kind), model_text(row.kind), row.kind.gpu};
    add_cells(line, row.memory.allocated);
    add_cells(line, row.memory.reserved);
    add_cells(line, error_of(row.step));
    line.push_back(row.memory.mended == 0 ? "" : std::to_string(row.memory.mended));
    cells.push_back(std::move(line));
  }
  return cells;
}

std::string accuracy_json(const std::vector<AccuracyRow>& rows) {
  AccuracyJson list = AccuracyJson::array();
  for (const AccuracyRow& row : rows)
    list.push_back({{"engine", engine_text(row.kind)},
                    {"models", model_text(row.kind)},
                    {"gpu", row.kind.gpu},
                    {"runs_that_corrected", row.memory.mended},
                    {"allocated", json_of(row.memory.allocated)},
                    {"reserved", json_of(row.memory.reserved)},
                    {"device", json_of(row.memory.device)},
                    {"step", json_of(error_of(row.step))}});
  return list.dump();
}

}  // namespace mfsdp
