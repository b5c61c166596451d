#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/closest.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "core/plan/engine.hpp"
#include "reports/commands/commands.hpp"
#include "reports/measures/measure.hpp"
#include "reports/render/output.hpp"
#include "reports/statistics/change_points.hpp"
#include "reports/store/find_runs.hpp"

namespace mfsdp {
namespace {

/// The runs of one model (or, where none is known, of one name), cluster and kind, whose steps have
/// as many tokens, in the order in which they were made.
struct MeasuredHistory {
  RunGroup group;
  std::string engine;
  std::string name;  ///< of runs of which no model is known: each name is a training of its own
  std::optional<std::int64_t> tokens;  ///< of a step, of all ranks; none: not known
  Measure measure;
  std::vector<StoredRun> runs;
  std::vector<double> values;
  std::vector<ChangePoint> changes;
};

using HistoryJson = nlohmann::ordered_json;

struct HistoryOptions : ReportOptions {
  std::string measure = "time.median_step_ns";
  bool changes = false;
  double least_change = 1;
};

std::vector<FlagGroup> history_flags(HistoryOptions& o) {
  return {
      {.title = "Figure",
       .flags =
           {text_flag(
                "--measure", "KEY",
                "a key of budgets (time.median_step_ns), loss.100 too; docs/reference/budgets.md "
                "lists them",
                o.measure),
            switch_flag("--changes", "only where it changed for good", o.changes),
            real_flag("--least-change", "percent of the median before (1)", o.least_change,
                      {.lowest = 0, .highest = 1000})}},
      filter_flags(o),
      store_flags(o)};
}

HelpText history_help() {
  return {
      .tool = "mfsdp-report history",
      .purpose =
          "A figure of every run, by model, cluster, kind and tokens of a step, and where it\n"
          "changed.\n"
          "Simulated figures have no noise: every change counts. Measured ones change where the\n"
          "rank test of Mann and Whitney finds it (0.01, corrected for the places tried), with\n"
          "five runs at least on either side.",
      .examples = {{"mfsdp-report history --changes", "when steps became slower"},
                   {"mfsdp-report history --measure memory.peak_bytes", "memory over time"}}};
}

Result<Measure> measure_of(const std::string& key) {
  if (const Measure* measure = find_measure(key)) return *measure;
  if (auto measure = class_measure_named(key)) return *std::move(measure);
  const std::size_t point = key.find('.');
  if (point != std::string::npos)
    if (const auto table = parse<StepMeasure>(key.substr(0, point))) {
      MFSDP_LET(step,
                parse_integer(key.substr(point + 1), "--measure " + key.substr(0, point), {}));
      return measure_at_step(*table, step);
    }
  std::vector<std::string> keys;
  for (const Measure& measure : measures()) keys.push_back(measure.key);
  return fail("--measure", fmt::format("unknown key {}; the closest is '{}'", in_quotes(key),
                                       closest_to(key, keys)));
}

/// "2026-11-23 07:55", UTC.
std::string made_at(std::int64_t unix_ns) {
  const auto seconds = static_cast<std::time_t>(unix_ns / 1'000'000'000);
  std::tm parts{};
  return gmtime_r(&seconds, &parts) == nullptr ? std::string("-")
                                               : fmt::format("{:%Y-%m-%d %H:%M}", parts);
}

/// The value of a measure. If the list of runs has it, the run itself is not loaded.
Result<std::optional<double>> value_of(Store& store, const StoredRun& run, const Measure& measure) {
  using Value = std::optional<double>;
  if (measure.key == "time.median_step_ns" && run.median_step)
    return Value(static_cast<double>(run.median_step->value));
  if (measure.key == "memory.peak_bytes" && run.peak)
    return Value(static_cast<double>(run.peak->value));
  const bool by_step = measure.nature == Nature::trained;
  MFSDP_LET(loaded, store.load(run.id, {.timeline = false, .steps = by_step, .launches = false}));
  const std::optional<Figure> figure = measure.read(loaded);
  return figure && std::isfinite(real_of(*figure)) ? Value(real_of(*figure)) : Value();
}

MeasuredHistory& history_of(std::vector<MeasuredHistory>& all, const StoredRun& run,
                            const Measure& measure) {
  const RunGroup group = group_of(run);
  const std::string name = run.model_name.empty() ? run.name : std::string();
  const std::optional<std::int64_t> tokens =
      run.global_batch && run.seq_len ? std::optional(checked_mul(*run.global_batch, *run.seq_len))
                                      : std::nullopt;
  const auto found = std::ranges::find_if(all, [&](const MeasuredHistory& history) {
    return history.group == group && history.engine == run.engine && history.name == name &&
           history.tokens == tokens;
  });
  if (found != all.end()) return *found;
  all.push_back({.group = group,
                 .engine = run.engine,
                 .name = name,
                 .tokens = tokens,
                 .measure = measure,
                 .runs = {},
                 .values = {},
                 .changes = {}});
  return all.back();
}

Result<std::vector<MeasuredHistory>> histories_of(Store& store, std::vector<StoredRun> runs,
                                                  const Measure& measure, double least_change) {
  std::ranges::stable_sort(runs, {}, &StoredRun::created_unix_ns);
  std::vector<MeasuredHistory> all;
  for (StoredRun& run : runs) {
    MFSDP_LET(value, value_of(store, run, measure));
    if (!value) continue;
    MeasuredHistory& history = history_of(all, run, measure);
    history.values.push_back(*value);
    history.runs.push_back(std::move(run));
  }
  for (MeasuredHistory& history : all) {
    const bool exact = history.group.source == "simulated" || measure.nature == Nature::planned;
    history.changes = exact ? exact_changes(history.values)
                            : change_points(history.values, {.least_change = least_change});
  }
  return all;
}

Figure figure_of(const Measure& measure, double value) {
  const bool whole = measure.unit == MeasureUnit::bytes || measure.unit == MeasureUnit::count ||
                     measure.unit == MeasureUnit::nanoseconds;
  if (whole) return static_cast<std::int64_t>(std::llround(value));
  return value;
}

/// "worse: 820.00 ms to 870.00 ms (+6.1 %)".
std::string change_text(const MeasuredHistory& history, const ChangePoint& change) {
  const Measure& measure = history.measure;
  const Figure before = figure_of(measure, change.before);
  const Figure after = figure_of(measure, change.after);
  const bool up = change.after > change.before;
  const bool worse = up == (measure.better == Better::lower);
  const std::string part = relative_text(before, after);
  return fmt::format("{}: {} to {}{}", worse ? "worse" : "better", human_text(measure.unit, before),
                     human_text(measure.unit, after),
                     part.empty() ? "" : fmt::format(" ({})", part));
}

const ChangePoint* change_at(const MeasuredHistory& history, std::size_t index) {
  const auto found = std::ranges::find(history.changes, index, &ChangePoint::at);
  return found == history.changes.end() ? nullptr : &*found;
}

Table history_table(const MeasuredHistory& history, bool changes_only) {
  Table table{.columns = {{"row", Align::right},
                          {"run"},
                          {"made (UTC)"},
                          {"commit"},
                          {history.measure.title, Align::right},
                          {"change"}}};
  for (std::size_t i = 0; i < history.runs.size(); ++i) {
    const ChangePoint* change = change_at(history, i);
    if (changes_only && change == nullptr) continue;
    const StoredRun& run = history.runs[i];
    table.rows.push_back(
        {fmt::format("{}", run.id), run.run_id.substr(0, 8), made_at(run.created_unix_ns),
         run.commit.substr(0, 12),
         human_text(history.measure.unit, figure_of(history.measure, history.values[i])),
         change == nullptr ? "" : change_text(history, *change)});
  }
  return table;
}

std::string title_of_history(const MeasuredHistory& history) {
  const std::string what = history.group.model_name.empty()
                               ? fmt::format("{} (no model known)", in_quotes(history.name))
                               : printable(history.group.model_name);
  const std::string tokens =
      history.tokens ? fmt::format(", {} tokens a step", format_count(*history.tokens)) : "";
  const std::string engine =
      history.engine.empty() ? "" : fmt::format(", {}", printable(shown_engine(history.engine)));
  return fmt::format("{}, {} x {}, {}{}{}: {} of {} runs, {} change{}", what, history.group.gpus,
                     printable(history.group.gpu), history.group.source, engine, tokens,
                     history.measure.key, history.runs.size(), history.changes.size(),
                     history.changes.size() == 1 ? "" : "s");
}

HistoryJson history_json(const MeasuredHistory& history, bool changes_only) {
  HistoryJson runs = HistoryJson::array();
  for (std::size_t i = 0; i < history.runs.size(); ++i) {
    const ChangePoint* change = change_at(history, i);
    if (changes_only && change == nullptr) continue;
    HistoryJson run = {{"row", history.runs[i].id},
                       {"run_id", history.runs[i].run_id},
                       {"created_unix_ns", history.runs[i].created_unix_ns},
                       {"commit", history.runs[i].commit},
                       {"value", history.values[i]}};
    if (change != nullptr)
      run["change"] = {{"before", change->before}, {"after", change->after}, {"p", change->p}};
    runs.push_back(std::move(run));
  }
  HistoryJson json = {
      {"model", history.group.model_name},
      {"gpu", history.group.gpu},
      {"gpus", history.group.gpus},
      {"source", history.group.source},
      {"engine", history.engine},
      {"tokens_per_step", history.tokens ? HistoryJson(*history.tokens) : HistoryJson()},
      {"measure", history.measure.key},
      {"runs", std::move(runs)}};
  if (history.group.model_name.empty()) json["name"] = history.name;
  return json;
}

std::string history_csv(const std::vector<MeasuredHistory>& histories, bool changes_only) {
  std::string text =
      "model,gpu,gpus,source,measure,row,run_id,created_unix_ns,commit,value,change,engine\n";
  for (const MeasuredHistory& history : histories)
    for (std::size_t i = 0; i < history.runs.size(); ++i) {
      const ChangePoint* change = change_at(history, i);
      if (changes_only && change == nullptr) continue;
      const StoredRun& run = history.runs[i];
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n",
                          csv_field(history.group.model_name), csv_field(history.group.gpu),
                          history.group.gpus, history.group.source, history.measure.key, run.id,
                          csv_field(run.run_id), run.created_unix_ns, csv_field(run.commit),
                          exact_text(figure_of(history.measure, history.values[i])),
                          change == nullptr ? "" : csv_field(change_text(history, *change)),
                          csv_field(history.engine));
    }
  return text;
}

std::string render_history(const std::vector<MeasuredHistory>& histories, OutputFormat format,
                           bool changes_only, const TextStyle& style) {
  std::string text;
  switch (format) {
    case OutputFormat::csv: return history_csv(histories, changes_only);
    case OutputFormat::text:
    case OutputFormat::md:
      for (const MeasuredHistory& history : histories) {
        const Table table = history_table(history, changes_only);
        const bool markdown = format == OutputFormat::md;
        text += (text.empty() ? "" : "\n") + std::string(markdown ? "### " : "") +
                (markdown ? markdown_text(title_of_history(history)) + "\n"
                          : title_of_history(history)) +
                "\n";
        if (!table.rows.empty())
          text += markdown ? render_markdown_table(table) : render_table(table, style);
      }
      return text.empty() ? "no runs\n" : text;
    case OutputFormat::json:
    case OutputFormat::jsonl: break;
  }
  const auto line = [](const HistoryJson& json, int indent) {
    return json.dump(indent, ' ', false, HistoryJson::error_handler_t::replace) + "\n";
  };
  HistoryJson list = HistoryJson::array();
  for (const MeasuredHistory& history : histories) {
    list.push_back(history_json(history, changes_only));
    text += line(list.back(), -1);
  }
  return format == OutputFormat::jsonl
             ? text
             : line({{"schema", "mfsdp.history/1"}, {"histories", std::move(list)}}, 2);
}

Result<ExitCode> show_history(const HistoryOptions& options, const Session& session) {
  MFSDP_LET(measure, measure_of(options.measure));
  MFSDP_LET(store, open_store(options));
  MFSDP_LET(runs, find_runs(store, options.words, options.filter));
  MFSDP_LET(histories, histories_of(store, std::move(runs), measure, options.least_change / 100));
  session.out << render_history(histories, options.output, options.changes, session.style);
  return ExitCode::good;
}

}  // namespace

Command history_command() {
  return make_command<HistoryOptions>({.name = "history",
                                       .summary = "a figure over many runs, and where it changed",
                                       .words = {.name = "RUN"},
                                       .help = history_help,
                                       .flags = history_flags,
                                       .act = show_history});
}

}  // namespace mfsdp
