#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/plan/config_fields.hpp"
#include "core/plan/engine.hpp"
#include "reports/compare/cells.hpp"
#include "reports/compare/compare.hpp"

namespace mfsdp {
namespace {

using Runs = std::span<const RunResult>;
constexpr std::size_t kShortId = 8;

/// A row of texts, unless no run has one.
void add_texts(ComparedSection& section, std::string name, Runs runs,
               const std::function<std::string(const RunResult&)>& text) {
  ComparedRow row{.name = std::move(name), .cells = {}};
  bool any = false;
  for (const RunResult& run : runs) {
    row.cells.push_back(text_cell(text(run)));
    any = any || row.cells.back().text != "-";
  }
  if (any) section.rows.push_back(std::move(row));
}

std::string predicted_text(const RunResult& run, std::string Predicted::* member) {
  return run.predicted() != nullptr ? run.predicted()->*member : std::string();
}

std::string count_text(const RunResult& run, ResultFigure figure, std::int64_t value) {
  return run.absent.has(figure) ? std::string() : fmt::format("{}", value);
}

/// Topics and names of the runs' facts, in order of appearance.
std::vector<std::pair<std::string, std::string>> names_of_facts(Runs runs) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const RunResult& run : runs)
    for (const Fact& fact : run.facts)
      if (std::pair name(fact.topic, fact.name); std::ranges::find(names, name) == names.end())
        names.push_back(std::move(name));
  return names;
}

void add_facts(ComparedSection& section, Runs runs) {
  for (const auto& [topic, name] : names_of_facts(runs))
    add_texts(section, topic + "." + name, runs, [&](const RunResult& run) {
      const Fact* fact = find_fact(run.facts, topic, name);
      return fact != nullptr ? fact_text(fact->value) : std::string();
    });
}

std::string label_of(const RunResult& run, std::size_t index) {
  if (!run.name.empty() && run.name.size() <= 2 * kShortId) return run.name;
  if (!run.run_id.empty()) return run.run_id.substr(0, kShortId);
  return fmt::format("run {}", index + 1);
}

bool mixes_kinds(Runs runs) {
  return std::ranges::any_of(
      runs, [&](const RunResult& run) { return run.source() != runs.front().source(); });
}

}  // namespace

bool ComparedRow::differs() const {
  return std::ranges::any_of(cells, [&](const ComparedCell& cell) {
    return cell.text != cells.front().text || cell.figure != cells.front().figure;
  });
}

ComparedSection compare_heads(Runs runs) {
  ComparedSection section{.title = "Runs", .notes = {}, .rows = {}};
  add_texts(section, "kind", runs, [](const auto& r) { return std::string(r.source()); });
  add_texts(section, "run", runs, [](const auto& r) { return r.run_id.substr(0, kShortId); });
  add_texts(section, "name", runs, [](const auto& r) { return r.name; });
  add_texts(section, "status", runs,
            [](const auto& r) { return std::string(to_string(r.status)); });
  add_texts(section, "model", runs, [](const auto& r) { return r.model_name; });
  add_texts(section, "parameters", runs,
            [](const auto& r) { return count_text(r, ResultFigure::parameters, r.parameters); });
  add_texts(section, "GPU", runs, [](const auto& r) { return r.cluster.gpu; });
  add_texts(section, "GPUs", runs,
            [](const auto& r) { return count_text(r, ResultFigure::gpus, r.cluster.gpus); });
  add_texts(section, "nodes", runs,
            [](const auto& r) { return count_text(r, ResultFigure::nodes, r.cluster.nodes); });
  add_texts(section, "network", runs, [](const auto& r) { return r.cluster.network; });
  add_texts(section, kEngineRow, runs, [](const auto& r) { return r.engine; });
  add_texts(section, "tool", runs, [](const auto& r) { return r.tool + " " + r.version; });
  add_texts(section, "commit", runs, [](const auto& r) { return r.commit; });
  add_texts(section, "plan", runs, [](const auto& r) { return r.plan_hash.substr(0, kShortId); });
  add_texts(section, "cost model", runs,
            [](const auto& r) { return predicted_text(r, &Predicted::cost_model_version); });
  add_texts(section, "calibration", runs,
            [](const auto& r) { return predicted_text(r, &Predicted::calibration); });
  return section;
}

ComparedSection compare_configurations(Runs runs) {
  ComparedSection section{.title = "Configuration", .notes = {}, .rows = {}};
  for (const ConfigField& field : kConfigFields)
    add_texts(
        section, field.name == "mesh" ? "outer_dp" : std::string(field.name), runs,
        [&](const RunResult& run) {
          std::string text;
          const auto engine = parse<EngineKind>(run.engine);
          if (run.absent.has(ResultFigure::config) || (engine && !has_choice(*engine, field.flag)))
            return text;
          std::visit([&](const auto member) { text = flag_text(run.config.*member); },
                     field.member);
          return text;
        });
  for (const Axis axis : {Axis::pp, Axis::cp, Axis::tp})
    add_texts(section, std::string(to_string(axis)), runs, [&](const RunResult& run) {
      const std::int64_t ranks = run.config.mesh.size(axis);
      return ranks > 1 ? fmt::format("{}", ranks) : std::string();
    });
  add_facts(section, runs);
  return section;
}

ComparedSection compare_measures(Runs runs, const std::string& table) {
  ComparedSection section{.title = "By " + table, .notes = {}, .rows = {}, .relative = true};
  const bool any_is_measured =
      std::ranges::any_of(runs, [](const RunResult& run) { return run.measured() != nullptr; });
  for (const Measure& measure : measures()) {
    if (measure.key != table && !measure.key.starts_with(table + ".")) continue;
    if (measure.key == "time.median_step_ns" && !any_is_measured) continue;  // the step again
    ComparedRow row{.name = measure.title, .unit = measure.unit, .cells = {}};
    for (const RunResult& run : runs)
      row.cells.push_back(figure_cell(measure.unit, measure.read(run)));
    const bool any = std::ranges::any_of(
        row.cells, [](const ComparedCell& cell) { return cell.figure.has_value(); });
    if (any) section.rows.push_back(std::move(row));
  }
  return section;
}

ComparedSection compare_classes(Runs runs) {
  ComparedSection section{.title = "Classes of ranks", .notes = {}, .rows = {}, .relative = true};
  std::vector<std::string> roles;
  for (const RunResult& run : runs)
    for (const ClassReport& one : run.classes())
      if (std::ranges::find(roles, one.role) == roles.end()) roles.push_back(one.role);
  const auto add = [&](const std::string& role, const char* what, MeasureUnit unit,
                       const auto& value) {
    ComparedRow row{.name = role + " " + what, .unit = unit, .cells = {}};
    for (const RunResult& run : runs) {
      std::optional<Figure> figure;
      for (const ClassReport& one : run.classes())
        if (one.role == role) figure = value(one);
      row.cells.push_back(figure_cell(unit, figure));
    }
    section.rows.push_back(std::move(row));
  };
  for (const std::string& role : roles) {
    add(role, "memory", MeasureUnit::bytes, [](const auto& one) { return one.allocated.value; });
    add(role, "host memory", MeasureUnit::bytes, [](const auto& one) { return one.host.value; });
    add(role, "compute", MeasureUnit::nanoseconds,
        [](const auto& one) { return one.compute.value; });
    add(role, "exposed", MeasureUnit::nanoseconds,
        [](const auto& one) { return one.exposed_communication.value; });
    add(role, "idle", MeasureUnit::nanoseconds, [](const auto& one) { return one.idle.value; });
  }
  return section;
}

Comparison compare_runs(Runs runs, const ProgramOf& program) {
  Comparison comparison;
  for (std::size_t i = 0; i < runs.size(); ++i)
    comparison.runs.push_back({.label = label_of(runs[i], i),
                               .name = runs[i].name,
                               .kind = std::string(runs[i].source()),
                               .run_id = runs[i].run_id});
  if (mixes_kinds(runs))
    comparison.notes.emplace_back(
        "simulated and measured runs stand side by side: what differs may be the simulation's "
        "error");
  std::vector<ComparedSection>& sections = comparison.sections;
  sections.push_back(compare_heads(runs));
  sections.push_back(compare_configurations(runs));
  const std::vector<std::pair<std::string, std::string>> tables{
      {"memory", "Memory"}, {"time", "Time"}, {"traffic", "Traffic"}, {"plan", "Plan"}};
  for (const auto& [table, title] : tables) {
    sections.push_back(compare_measures(runs, table));
    sections.back().title = title;
  }
  if (ComparedSection classes = compare_classes(runs); !classes.rows.empty())
    sections.push_back(std::move(classes));
  const auto add_all = [&](std::vector<ComparedSection> more) {
    for (ComparedSection& section : more) sections.push_back(std::move(section));
  };
  add_all(compare_streams_and_kinds(runs));
  sections.push_back(compare_plans(runs));
  sections.push_back(compare_buffers(runs, program));
  add_all(compare_convergence(runs));
  add_all(prediction_errors(runs));
  return comparison;
}

}  // namespace mfsdp
