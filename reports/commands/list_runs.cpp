#include "reports/commands/list_runs.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ctime>
#include <string_view>
#include <utility>
#include <variant>

#include "core/base/json_text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "core/plan/engine.hpp"
#include "reports/commands/commands.hpp"
#include "reports/render/output.hpp"
#include "reports/store/find_runs.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kShownId = 8;
constexpr std::size_t kShownText = 32;
constexpr std::string_view kUnknown = "-";

/// "2026-11-23 07:55", UTC.
std::string minute_of(std::int64_t unix_ns) {
  const auto seconds = static_cast<std::time_t>(unix_ns / 1'000'000'000);
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return std::string(kUnknown);
  return fmt::format("{:%Y-%m-%d %H:%M}", parts);
}

template <class Value, class Format>
std::string known(const std::optional<Value>& value, Format format) {
  return value ? std::string(format(*value)) : std::string(kUnknown);
}

std::string joined_marks(std::span<const std::string> texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : " ") + text;
  return all;
}

std::string cluster_text(const StoredRun& run) {
  const std::string gpu =
      run.gpu.empty() ? std::string(kUnknown) : cut_to_width(run.gpu, kShownText);
  return run.gpus > 0 ? fmt::format("{} x {}", run.gpus, gpu) : gpu;
}

Table list_table(std::span<const StoredRun> runs) {
  Table table{.columns = {{"row", Align::right},
                          {"run"},
                          {"made (UTC)"},
                          {"kind"},
                          {"name"},
                          {"model"},
                          {"cluster"},
                          {"engine"},
                          {"strategy"},
                          {"status"},
                          {"step", Align::right},
                          {"tokens/s/GPU", Align::right},
                          {"MFU", Align::right},
                          {"peak GiB", Align::right},
                          {"marks"}}};
  table.rows.reserve(runs.size());
  for (const StoredRun& run : runs)
    table.rows.push_back(
        {fmt::format("{}", run.id), run.run_id.substr(0, kShownId), minute_of(run.created_unix_ns),
         run.source, cut_to_width(run.name, kShownText),
         run.model_name.empty() ? std::string(kUnknown) : cut_to_width(run.model_name, kShownText),
         cluster_text(run),
         run.engine.empty() ? std::string(kUnknown)
                            : cut_to_width(shown_engine(run.engine), kShownText),
         run.strategy.value_or(std::string(kUnknown)), run.status,
         known(run.median_step, format_duration), known(run.tokens_per_second_per_gpu, format_rate),
         known(run.mfu, format_percent), known(run.peak, format_gib), joined_marks(run.marks)});
  return table;
}

/// A field of a listed run, whose texts it looks at; nothing: not known.
using Cell = std::variant<std::monostate, bool, std::int64_t, double, std::string_view,
                          std::span<const std::string>>;
using Cells = std::array<std::pair<std::string_view, Cell>, 23>;

template <class Value>
Cell cell_of(const std::optional<Value>& value) {
  return value ? Cell(*value) : Cell();
}

/// The columns of the CSV and the keys of the JSON, in order. `run` must outlive them.
Cells cells_of(const StoredRun& run) {
  return {{{"row", run.id},
           {"run_id", run.run_id},
           {"name", run.name},
           {"created_unix_ns", run.created_unix_ns},
           {"source", run.source},
           {"engine", run.engine},
           {"tool", run.tool},
           {"commit", run.commit},
           {"status", run.status},
           {"model", run.model_name},
           {"gpu", run.gpu},
           {"gpus", run.gpus > 0 ? Cell(run.gpus) : Cell()},
           {"strategy", cell_of(run.strategy)},
           {"micro_batch", cell_of(run.micro_batch)},
           {"seq_len", cell_of(run.seq_len)},
           {"global_batch", cell_of(run.global_batch)},
           {"plan_hash", run.plan_hash},
           {"fits", cell_of(run.fits)},
           {"peak_bytes", run.peak ? Cell(run.peak->value) : Cell()},
           {"median_step_ns", run.median_step ? Cell(run.median_step->value) : Cell()},
           {"tokens_per_second_per_gpu", cell_of(run.tokens_per_second_per_gpu)},
           {"mfu", cell_of(run.mfu)},
           {"marks", std::span(run.marks)}}};
}

/// Writes a cell as JSON.
struct JsonCell {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const {
    return std::isfinite(value) ? fmt::format("{}", value) : "null";
  }
  std::string operator()(std::string_view value) const { return json_literal(value); }
  std::string operator()(std::span<const std::string> values) const {
    std::string text = "[";
    for (const std::string& value : values)
      text += (text.size() > 1 ? "," : "") + json_literal(value);
    return text + "]";
  }
};

/// Writes a cell as CSV: nothing for what is not known.
struct CsvCell {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(std::string_view value) const { return csv_field(value); }
  std::string operator()(std::span<const std::string> values) const {
    return csv_field(joined_marks(values));
  }
  std::string operator()(auto value) const { return JsonCell{}(value); }
};

std::string json_line_of(const StoredRun& run) {
  std::string line = "{";
  for (const auto& [key, cell] : cells_of(run)) {
    line += line.size() > 1 ? ",\"" : "\"";
    line += key;
    line += "\":" + std::visit(JsonCell{}, cell);
  }
  return line + "}";
}

std::string render_csv_list(std::span<const StoredRun> runs) {
  std::string out;
  const StoredRun none;
  for (const auto& [key, cell] : cells_of(none)) {
    out += out.empty() ? "" : ",";
    out += key;
  }
  out += "\n";
  for (const StoredRun& run : runs) {
    std::string line;
    for (const auto& [key, cell] : cells_of(run))
      line += (line.empty() ? "" : ",") + std::visit(CsvCell{}, cell);
    out += line + "\n";
  }
  return out;
}

std::vector<FlagGroup> list_flags(ReportOptions& options) {
  return {filter_flags(options), store_flags(options)};
}

HelpText list_help() {
  return {.tool = "mfsdp-report list",
          .purpose = "The runs of a store, in the order of storing; RUN... for some alone.",
          .examples = {{"mfsdp-report list", "all runs of mfsdp.sqlite"},
                       {"mfsdp-report list --model llama3_8b --since 7d", "of one week"},
                       {"mfsdp-report list --kind measured --output csv", "for a spreadsheet"}}};
}

Result<ExitCode> list_stored(const ReportOptions& options, const Session& session) {
  MFSDP_LET(store, open_store(options));
  MFSDP_LET(runs, find_runs(store, options.words, options.filter));
  session.out << render_list(runs, options.output, session.style);
  return ExitCode::good;
}

}  // namespace

std::string render_list(std::span<const StoredRun> runs, OutputFormat format,
                        const TextStyle& style) {
  std::string out;
  switch (format) {
    case OutputFormat::text:
      return runs.empty() ? "no runs\n" : render_table(list_table(runs), style);
    case OutputFormat::md: return render_markdown_table(list_table(runs));
    case OutputFormat::csv: return render_csv_list(runs);
    case OutputFormat::jsonl:
      for (const StoredRun& run : runs) out += json_line_of(run) + "\n";
      return out;
    case OutputFormat::json:
      out = "{\n  \"schema\": \"mfsdp.runs/1\",\n  \"runs\": [";
      for (const StoredRun& run : runs)
        out += (&run == runs.data() ? "\n    " : ",\n    ") + json_line_of(run);
      return out + (runs.empty() ? "]\n}\n" : "\n  ]\n}\n");
  }
  return out;
}

Command list_command() {
  return make_command<ReportOptions>({.name = "list",
                                      .summary = "the runs of a store, a line each",
                                      .words = {.name = "RUN"},
                                      .help = list_help,
                                      .flags = list_flags,
                                      .act = list_stored});
}

}  // namespace mfsdp
