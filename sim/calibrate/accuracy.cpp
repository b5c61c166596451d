#include "sim/calibrate/accuracy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

namespace mfsdp {
namespace {

using AccuracyJson = nlohmann::ordered_json;

std::size_t end_of_name(const PredictionKind& kind) {
  return std::min(kind.engine.find(' '), kind.engine.size());
}

EngineKind engine_of(const PredictionKind& kind) {
  return parse<EngineKind>(kind.engine.substr(0, end_of_name(kind))).value();
}

std::tuple<std::size_t, std::string, std::string, std::string> order_of(
    const PredictionKind& kind) {
  return {static_cast<std::size_t>(engine_of(kind)), kind.engine.substr(end_of_name(kind)),
          kind.gpu, model_text(kind)};
}

/// Rows of memory and of steps.
std::int64_t corrected(const AccuracyRow& row) {
  return row.memory.mended + (row.step ? row.step->mended : 0);
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
    const std::int64_t mended = corrected(row);
    line.push_back(mended == 0 ? "" : std::to_string(mended));
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
                    {"runs_that_corrected", corrected(row)},
                    {"allocated", json_of(row.memory.allocated)},
                    {"reserved", json_of(row.memory.reserved)},
                    {"device", json_of(row.memory.device)},
                    {"step", json_of(error_of(row.step))}});
  return list.dump();
}

std::vector<EngineAccuracy> accuracy_of_engines(const OwnRuns& runs) {
  std::map<EngineKind, EngineAccuracy> engines;
  const auto of = [&](const PredictionKind& kind) -> EngineAccuracy& {
    EngineAccuracy& found = engines[engine_of(kind)];
    found.engine = shown_engine(to_string(engine_of(kind)));
    return found;
  };
  for (const OwnStep& run : runs.steps) {
    EngineAccuracy& engine = of(run.kind);
    if (run.is_mended)
      ++engine.corrected;
    else
      engine.step.add(run.measured_ms, run.predicted_ms);
  }
  for (const OwnMemory& run : runs.memory) {
    EngineAccuracy& engine = of(run.kind);
    if (run.is_mended) {
      ++engine.corrected;
      continue;
    }
    engine.allocated.add(run.allocated.measured, run.allocated.predicted);
    if (run.reserved) engine.reserved.add(run.reserved->measured, run.reserved->predicted);
  }
  std::vector<EngineAccuracy> all;
  for (auto& [kind, engine] : engines) all.push_back(std::move(engine));
  return all;
}

std::vector<std::vector<std::string>> accuracy_cells(const std::vector<EngineAccuracy>& engines) {
  std::vector<std::vector<std::string>> cells{{"each engine", "allocated: runs", "%", "worst",
                                               "reserved: runs", "%", "worst", "step: runs", "%",
                                               "worst", "corrected: runs"}};
  for (const EngineAccuracy& engine : engines) {
    std::vector<std::string> line{engine.engine};
    for (const ErrorOfRuns& error : {engine.allocated, engine.reserved, engine.step})
      add_cells(line, error);
    line.push_back(engine.corrected == 0 ? "" : std::to_string(engine.corrected));
    cells.push_back(std::move(line));
  }
  return cells;
}

std::string accuracy_json(const std::vector<EngineAccuracy>& engines) {
  AccuracyJson list = AccuracyJson::array();
  for (const EngineAccuracy& engine : engines)
    list.push_back({{"engine", engine.engine},
                    {"runs_that_corrected", engine.corrected},
                    {"allocated", json_of(engine.allocated)},
                    {"reserved", json_of(engine.reserved)},
                    {"step", json_of(engine.step)}});
  return list.dump();
}

}  // namespace mfsdp
