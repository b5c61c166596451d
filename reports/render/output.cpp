#include "reports/render/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "core/plan/config_fields.hpp"
#include "reports/record/result_json.hpp"
#include "reports/render/text_report.hpp"

namespace mfsdp {
namespace {

struct Field {
  std::string name;
  std::string value;
};

void add_cluster(std::vector<Field>& fields, const ClusterSummary& cluster) {
  fields.push_back({"gpu", cluster.gpu});
  fields.push_back({"gpus", fmt::format("{}", cluster.gpus)});
  fields.push_back({"nodes", fmt::format("{}", cluster.nodes)});
  fields.push_back({"gpus_per_node", fmt::format("{}", cluster.gpus_per_node)});
}

/// Adds a field of the configuration to the CSV: a column for most, two for recomputation.
struct ConfigColumns {
  std::vector<Field>& fields;

  void operator()(const ConfigField& /*field*/, const Mesh& mesh) const {
    fields.push_back({"outer_dp", flag_text(mesh)});
  }
  void operator()(const ConfigField& field, const RecomputePolicy& policy) const {
    fields.push_back({std::string(field.name), flag_text(policy.kind)});
    fields.push_back({std::string(field.name) + "_full_blocks", flag_text(policy.full_blocks)});
  }
  void operator()(const ConfigField& field, const auto& value) const {
    fields.push_back({std::string(field.name), flag_text(value)});
  }
};

/// The fields of that age. Columns are only ever appended, so those of each age stand together.
void add_configuration(std::vector<Field>& fields, const PlanConfig& config, FieldAge age) {
  for_each_field(config, [&](const ConfigField& field, const auto& value) {
    if (field.age == age) ConfigColumns{fields}(field, value);
  });
}

std::vector<Field> later_fields(const RunResult& run, const Predicted& predicted) {
  const std::optional<TrainingEstimate>& estimate = predicted.training;
  const auto training = [&](auto part) {
    return estimate ? fmt::format("{}", part(*estimate)) : std::string();
  };
  const bool priced = estimate && estimate->cost;
  return {{"network", run.cluster.network},
          {"global_batch", fmt::format("{}", run.config.global_batch())},
          {"reserve_bytes", fmt::format("{}", run.memory.reserve.value)},
          {"training_tokens", training([](const TrainingEstimate& t) { return t.tokens; })},
          {"training_seconds", training([](const TrainingEstimate& t) { return t.seconds; })},
          {"training_gpu_hours", training([](const TrainingEstimate& t) { return t.gpu_hours; })},
          {"training_cost", priced ? fmt::format("{}", *estimate->cost) : ""}};
}

void add_memory(std::vector<Field>& fields, const MemorySummary& memory,
                const std::string& peak_op) {
  const auto bytes = [&](std::string name, Bytes value) {
    fields.push_back({std::move(name), fmt::format("{}", value.value)});
  };
  fields.push_back({"fits", memory.fits ? "true" : "false"});
  bytes("capacity_bytes", memory.capacity);
  bytes("allocated_bytes", memory.allocated);
  bytes("headroom_bytes", memory.headroom);
  bytes("peak_bytes", memory.peak);
  fields.push_back({"peak_op", peak_op});
  for (std::size_t i = 0; i < memory.categories.size(); ++i)
    bytes(std::string(to_string(static_cast<Category>(i))) + "_bytes", memory.categories[i]);
}

/// Empty cells of engines without a caching allocator.
void add_cached(std::vector<Field>& fields, const std::optional<CachedMemory>& memory) {
  const CachedMemory known = memory.value_or(CachedMemory{});
  fields.push_back({"reserved_bytes", memory ? fmt::format("{}", known.reserved.value) : ""});
  fields.push_back({"device_bytes", known.device ? fmt::format("{}", known.device->value) : ""});
  fields.push_back({"alloc_retries", known.retries ? fmt::format("{}", *known.retries) : ""});
}

/// Empty cells of what is no prediction of a caching allocator's memory.
void add_memory_errors(std::vector<Field>& fields, const std::optional<CachedMemory>& memory) {
  const bool is_known = memory && memory->errors;
  const MemoryErrors known = is_known ? *memory->errors : MemoryErrors{};
  const auto add = [&](const char* name, double error) {
    fields.push_back({name, is_known ? fmt::format("{}", error) : std::string()});
  };
  add("allocated_error", known.allocated);
  add("reserved_error", known.reserved);
  add("device_error", known.device);
}

/// An empty cell where nothing is known of it.
Field fits_certain(const std::optional<CachedMemory>& memory) {
  const bool is_known = memory && memory->fits_certain;
  return {"fits_certain", is_known ? (*memory->fits_certain ? "true" : "false") : ""};
}

/// Empty cells where the host has nothing to do.
void add_host(std::vector<Field>& fields, const std::optional<HostTime>& host) {
  const auto cell = [&](Nanos time) {
    return host ? fmt::format("{}", time.value) : std::string();
  };
  const HostTime known = host.value_or(HostTime{});
  fields.push_back({"host_issue_ns", cell(known.issue)});
  fields.push_back({"host_bound_ns", cell(known.bound)});
}

void add_time(std::vector<Field>& fields, const RunFigures& run) {
  const TimeSummary& t = run.time;
  const auto integer = [&](std::string name, std::int64_t value) {
    fields.push_back({std::move(name), fmt::format("{}", value)});
  };
  const auto real = [&](std::string name, double value) {
    fields.push_back({std::move(name), fmt::format("{}", value)});
  };
  integer("step_ns", t.step.value);
  integer("compute_ns", t.compute.value);
  integer("communication_ns", t.communication.value);
  integer("exposed_communication_ns", t.exposed_communication.value);
  integer("idle_ns", t.idle.value);
  integer("contention_ns", t.contention.value);
  real("overlap_fraction", t.overlap_fraction);
  real("tokens_per_second_per_gpu", t.tokens_per_second_per_gpu);
  real("tflops_per_gpu", t.tflops_per_gpu);
  real("mfu", t.mfu);
  integer("all_gather_bytes", run.traffic.all_gather.value);
  integer("reduce_scatter_bytes", run.traffic.reduce_scatter.value);
  integer("all_reduce_bytes", run.traffic.all_reduce.value);
}

/// Unknown figures are empty cells.
void clear_absent(std::vector<Field>& fields, const FigureSet& absent) {
  if (absent.empty()) return;
  const auto clear = [&](std::string_view name) {
    for (Field& field : fields)
      if (field.name == name) field.value.clear();
  };
  for (std::size_t i = 0; i < FigureSet::kFigures; ++i) {
    const auto figure = static_cast<ResultFigure>(i);
    // Its column is the name, which may be known without the shape.
    if (absent.has(figure) && figure != ResultFigure::model) clear(to_string(figure));
  }
  if (absent.has(ResultFigure::categories))
    for (const std::string_view category : Names<Category>::values)
      clear(fmt::format("{}_bytes", category));
  if (!absent.has(ResultFigure::config)) return;
  std::vector<Field> of_config{{"global_batch", ""}};
  for (const FieldAge age :
       {FieldAge::first, FieldAge::second, FieldAge::later, FieldAge::newest, FieldAge::last})
    add_configuration(of_config, PlanConfig{}, age);
  for (const Field& field : of_config) clear(field.name);
}

/// Every column of the CSV, in order. Scripts find columns by name: add at the end.
std::vector<Field> csv_fields(const RunResult& run) {
  static const Predicted none;  // every run has every column
  const Predicted& predicted = run.predicted() != nullptr ? *run.predicted() : none;
  std::vector<Field> fields{{"run_id", run.run_id},
                            {"name", run.name},
                            {"created_unix_ns", fmt::format("{}", run.created_unix_ns)},
                            {"tool", run.tool},
                            {"version", run.version},
                            {"source", std::string(run.source())},
                            {"engine", run.engine},
                            {"calibration", predicted.calibration},
                            {"cost_model_version", predicted.cost_model_version},
                            {"plan_hash", run.plan_hash},
                            {"model", run.model_name},
                            {"parameters", fmt::format("{}", run.parameters)}};
  add_cluster(fields, run.cluster);
  add_configuration(fields, run.config, FieldAge::first);
  add_memory(fields, run.memory, predicted.peak_op);
  add_time(fields, run);
  add_configuration(fields, run.config, FieldAge::second);
  for (Field& field : later_fields(run, predicted)) fields.push_back(std::move(field));
  fields.push_back({"trust", predicted.trust.trust_level});
  const std::optional<double>& step_error = predicted.trust.step_error;
  fields.push_back({"step_error", step_error ? fmt::format("{}", *step_error) : ""});
  add_configuration(fields, run.config, FieldAge::later);
  fields.push_back({"commit", run.commit});
  fields.push_back({"median_step_ns", fmt::format("{}", run.time.median_step.value)});
  add_configuration(fields, run.config, FieldAge::newest);
  add_cached(fields, run.memory.cached);
  add_host(fields, run.time.host);
  add_memory_errors(fields, run.memory.cached);
  fields.push_back({"status", std::string(to_string(run.status))});
  fields.push_back(fits_certain(run.memory.cached));
  add_configuration(fields, run.config, FieldAge::last);
  for (const Axis axis : {Axis::cp, Axis::tp, Axis::pp})
    fields.push_back({std::string(to_string(axis)), fmt::format("{}", run.config.mesh.size(axis))});
  clear_absent(fields, run.absent);
  return fields;
}

std::string csv_line(const std::vector<Field>& fields, std::string Field::* part) {
  std::string line;
  for (std::size_t i = 0; i < fields.size(); ++i)
    line += (i > 0 ? "," : "") + csv_field(fields[i].*part);
  return line + "\n";
}

std::string render_csv(std::span<const RunResult> runs) {
  std::string out = csv_line(csv_fields(runs.empty() ? RunResult{} : runs.front()), &Field::name);
  for (const RunResult& run : runs) out += csv_line(csv_fields(run), &Field::value);
  return out;
}

/// The fields that have no column by hand, with blanks between words.
void add_later_columns(Table& table) {
  for (const ConfigField& field : kConfigFields) {
    if (field.age == FieldAge::first) continue;
    std::string title(field.name);
    std::ranges::replace(title, '_', ' ');
    const bool is_number = std::holds_alternative<std::int64_t PlanConfig::*>(field.member) ||
                           std::holds_alternative<Rational PlanConfig::*>(field.member);
    table.columns.push_back({std::move(title), is_number ? Align::right : Align::left});
  }
}

void add_later_cells(std::vector<std::string>& cells, const RunResult& run) {
  const bool is_known = !run.absent.has(ResultFigure::config);
  for_each_field(run.config, [&](const ConfigField& field, const auto& value) {
    if (field.age != FieldAge::first) cells.push_back(is_known ? flag_text(value) : "-");
  });
}

std::string render_markdown(std::span<const RunResult> runs) {
  Table table{.columns = {{"model"},
                          {"GPU"},
                          {"GPUs", Align::right},
                          {"strategy"},
                          {"outer-dp", Align::right},
                          {"sequence", Align::right},
                          {"batch", Align::right},
                          {"recompute"},
                          {"fits"},
                          {"allocated GiB", Align::right},
                          {"peak GiB", Align::right},
                          {"step", Align::right},
                          {"tokens/s/GPU", Align::right},
                          {"TFLOP/s", Align::right},
                          {"MFU", Align::right},
                          {"hidden", Align::right},
                          {"plan"}}};
  add_later_columns(table);
  for (const RunResult& run : runs) {
    using enum ResultFigure;
    const PlanConfig& c = run.config;
    const auto known = [&](ResultFigure figure, std::string text) {
      return run.absent.has(figure) ? std::string("-") : std::move(text);
    };
    table.rows.push_back(
        {run.name.empty() ? run.model_name : run.model_name + ": " + run.name, run.cluster.gpu,
         known(gpus, format_count(run.cluster.gpus)),
         known(config, std::string(to_string(c.strategy))),
         known(config, format_count(c.mesh.size(Axis::dp_outer))),
         known(config, format_count(c.seq_len)),
         known(config, fmt::format("{} x {}", c.microbatches, c.micro_batch)),
         known(config, flag_text(c.recompute)), known(fits, run.memory.fits ? "yes" : "no"),
         known(allocated_bytes, format_gib(run.memory.allocated)),
         known(peak_bytes, format_gib(run.memory.peak)),
         known(median_step_ns, format_duration(run.time.median_step)),
         known(tokens_per_second_per_gpu, format_rate(run.time.tokens_per_second_per_gpu)),
         known(tflops_per_gpu, format_real(run.time.tflops_per_gpu, 1)),
         known(mfu, format_percent(run.time.mfu)),
         known(overlap_fraction, format_percent(run.time.overlap_fraction)), run.plan_hash});
    add_later_cells(table.rows.back(), run);
  }
  std::string text = render_markdown_table(table);
  for (const RunResult& run : runs)
    if (const Predicted* predicted = run.predicted())
      for (const OtherEngine& other : predicted->other_engines)
        text += fmt::format("\nInstead {}\n", other_engine_text(other));
  return text;
}

std::string indented(std::string_view text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

std::string without_final_newline(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// A list of results in an object that states the number of configurations without a prediction.
std::string render_sweep_json(std::span<const RunResult> runs, std::int64_t not_predicted) {
  std::string out = fmt::format(
      "{{\n  \"schema\": \"mfsdp.sweep/1\",\n  \"not_predicted\": {},\n  \"results\": [",
      not_predicted);
  for (std::size_t i = 0; i < runs.size(); ++i)
    out += (i > 0 ? ",\n" : "\n") + indented(without_final_newline(to_json(runs[i])));
  return out + (runs.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

/// Whether a spreadsheet would take the text for a formula. Numbers are none.
bool looks_like_a_formula(std::string_view text) {
  if (text.empty() || std::string_view("=+-@\t\r").find(text.front()) == std::string_view::npos)
    return false;
  double number = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code != std::errc() || stop != text.data() + text.size();
}

}  // namespace

std::string csv_field(std::string_view text) {
  if (looks_like_a_formula(text)) return csv_field("'" + std::string(text));
  const bool plain = text.find_first_of(",\"\r\n") == std::string_view::npos &&
                     !text.starts_with(' ') && !text.ends_with(' ');
  if (plain) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string render_runs(std::span<const RunResult> runs, OutputFormat format,
                        const TextStyle& style, const std::string& stored) {
  std::string out;
  switch (format) {
    case OutputFormat::json:
      return runs.size() == 1 ? without_final_newline(to_json(runs.front())) + "\n"
                              : render_sweep_json(runs, 0);
    case OutputFormat::csv: return render_csv(runs);
    case OutputFormat::md: return render_markdown(runs);
    case OutputFormat::jsonl:
      for (const RunResult& run : runs) out += to_json_line(run) + "\n";
      return out;
    case OutputFormat::text:
      for (const RunResult& run : runs)
        out += (out.empty() ? "" : "\n") + render_text(run, style, stored);
      return out;
  }
  return out;
}

std::string render_sweep(std::span<const RunResult> runs, std::int64_t not_predicted,
                         OutputFormat format, const TextStyle& style, const std::string& stored) {
  return format == OutputFormat::json ? render_sweep_json(runs, not_predicted)
                                      : render_runs(runs, format, style, stored);
}

std::string render_ranked_csv(std::span<const RunResult> runs) {
  std::vector<Field> fields = csv_fields(runs.empty() ? RunResult{} : runs.front());
  fields.push_back({"rank", ""});
  std::string out = csv_line(fields, &Field::name);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    fields = csv_fields(runs[i]);
    fields.push_back({"rank", fmt::format("{}", i + 1)});
    out += csv_line(fields, &Field::value);
  }
  return out;
}

}  // namespace mfsdp
