#include "core/cli/output.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "core/cli/text_report.hpp"
#include "core/plan/result_json.hpp"

namespace mfsdp {
namespace {

struct Field {
  std::string name;
  std::string value;
};

void add_configuration(std::vector<Field>& fields, const RunResult& run) {
  const PlanConfig& c = run.config;
  const auto integer = [&](std::string name, std::int64_t value) {
    fields.push_back({std::move(name), fmt::format("{}", value)});
  };
  const auto word = [&](std::string name, std::string_view value) {
    fields.push_back({std::move(name), std::string(value)});
  };
  word("gpu", run.cluster.gpu);
  integer("gpus", run.cluster.gpus);
  integer("nodes", run.cluster.nodes);
  integer("gpus_per_node", run.cluster.gpus_per_node);
  word("strategy", to_string(c.strategy));
  integer("outer_dp", c.mesh.size(Axis::dp_outer));
  word("outer_strategy", to_string(c.outer_strategy));
  integer("seq_len", c.seq_len);
  integer("micro_batch", c.micro_batch);
  integer("microbatches", c.microbatches);
  word("recompute", to_string(c.recompute.kind));
  integer("recompute_full_blocks", c.recompute.full_blocks);
  word("param_dtype", to_string(c.param_dtype));
  word("main_dtype", to_string(c.main_dtype));
  word("grad_dtype", to_string(c.grad_dtype));
  word("reduce_dtype", to_string(c.reduce_dtype));
  integer("prefetch", c.prefetch);
  integer("grad_slots", c.grad_slots);
  word("allocator", to_string(c.allocator));
  word("optimizer", to_string(c.optimizer));
}

/// A decimal where one stands for the fraction exactly, else "num/den".
std::string exact_text(const Rational& value) {
  if (value.den == 1) return fmt::format("{}", value.num);
  const auto back = rational_from_double(value.value(), "");
  if (back && *back == value) return fmt::format("{}", value.value());
  return fmt::format("{}/{}", value.num, value.den);
}

/// What later versions added to the configuration: columns are only ever appended.
std::vector<Field> numerics_fields(const PlanConfig& config) {
  return {{"clip", exact_text(config.clip)},
          {"deterministic", config.deterministic ? "true" : "false"},
          {"exact_sums", config.exact_sums ? "true" : "false"},
          {"frozen", fmt::format("{}", fmt::join(config.frozen, ","))},
          {"logits_chunk", fmt::format("{}", config.logits_chunk)}};
}

std::vector<Field> later_fields(const RunResult& run) {
  const auto training = [&](auto part) {
    return run.training ? fmt::format("{}", part(*run.training)) : std::string();
  };
  const bool priced = run.training && run.training->cost;
  return {{"network", run.cluster.network},
          {"global_batch", fmt::format("{}", run.config.global_batch())},
          {"reserve_bytes", fmt::format("{}", run.memory.reserve.value)},
          {"training_tokens", training([](const TrainingEstimate& t) { return t.tokens; })},
          {"training_seconds", training([](const TrainingEstimate& t) { return t.seconds; })},
          {"training_gpu_hours", training([](const TrainingEstimate& t) { return t.gpu_hours; })},
          {"training_cost", priced ? fmt::format("{}", *run.training->cost) : ""}};
}

void add_memory(std::vector<Field>& fields, const MemorySummary& memory) {
  const auto bytes = [&](std::string name, Bytes value) {
    fields.push_back({std::move(name), fmt::format("{}", value.value)});
  };
  fields.push_back({"fits", memory.fits ? "true" : "false"});
  bytes("capacity_bytes", memory.capacity);
  bytes("allocated_bytes", memory.allocated);
  bytes("headroom_bytes", memory.headroom);
  bytes("peak_bytes", memory.peak);
  fields.push_back({"peak_op", memory.peak_op});
  for (std::size_t i = 0; i < memory.categories.size(); ++i)
    bytes(std::string(to_string(static_cast<Category>(i))) + "_bytes", memory.categories[i]);
}

void add_time(std::vector<Field>& fields, const RunResult& run) {
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

/// Every column of the CSV, in order. Scripts find columns by name: add at the end.
std::vector<Field> csv_fields(const RunResult& run) {
  std::vector<Field> fields{{"run_id", run.run_id},
                            {"name", run.name},
                            {"created_unix_ns", fmt::format("{}", run.created_unix_ns)},
                            {"tool", run.tool},
                            {"version", run.version},
                            {"source", run.source},
                            {"engine", run.engine},
                            {"calibration", run.calibration},
                            {"cost_model_version", run.cost_model_version},
                            {"plan_hash", run.plan_hash},
                            {"model", run.model_name},
                            {"parameters", fmt::format("{}", run.parameters)}};
  add_configuration(fields, run);
  add_memory(fields, run.memory);
  add_time(fields, run);
  for (Field& field : numerics_fields(run.config)) fields.push_back(std::move(field));
  for (Field& field : later_fields(run)) fields.push_back(std::move(field));
  fields.push_back({"trust", run.trust.tier});
  fields.push_back({"step_error", fmt::format("{}", run.trust.step_error)});
  fields.push_back({"layout", std::string(to_string(run.config.layout))});
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

/// As --recompute takes it: "full:20" of some blocks.
std::string recompute_cell(const RecomputePolicy& policy) {
  const std::string kind(to_string(policy.kind));
  return policy.full_blocks == 0 ? kind : fmt::format("{}:{}", kind, policy.full_blocks);
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
                          {"plan"},
                          {"clip", Align::right},
                          {"deterministic"},
                          {"exact sums"},
                          {"frozen"},
                          {"logits chunk", Align::right}},
              .rows = {}};
  for (const RunResult& run : runs) {
    const PlanConfig& c = run.config;
    table.rows.push_back(
        {run.name.empty() ? run.model_name : run.model_name + ": " + run.name, run.cluster.gpu,
         format_count(run.cluster.gpus), std::string(to_string(c.strategy)),
         format_count(c.mesh.size(Axis::dp_outer)), format_count(c.seq_len),
         fmt::format("{} x {}", c.microbatches, c.micro_batch), recompute_cell(c.recompute),
         run.memory.fits ? "yes" : "no", format_gib(run.memory.allocated),
         format_gib(run.memory.peak), format_duration(run.time.step),
         format_rate(run.time.tokens_per_second_per_gpu), format_real(run.time.tflops_per_gpu, 1),
         format_percent(run.time.mfu), format_percent(run.time.overlap_fraction), run.plan_hash});
    for (const Field& field : numerics_fields(c)) table.rows.back().push_back(field.value);
  }
  return render_markdown_table(table);
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

/// A list of results in an object that says so.
std::string render_sweep_json(std::span<const RunResult> runs) {
  std::string out = "{\n  \"schema\": \"mfsdp.sweep/1\",\n  \"results\": [";
  for (std::size_t i = 0; i < runs.size(); ++i)
    out += (i > 0 ? ",\n" : "\n") + indented(without_final_newline(to_json(runs[i])));
  return out + (runs.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

}  // namespace

std::string csv_field(std::string_view text) {
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
                              : render_sweep_json(runs);
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

std::string render_sweep(std::span<const RunResult> runs, OutputFormat format,
                         const TextStyle& style, const std::string& stored) {
  return format == OutputFormat::json ? render_sweep_json(runs)
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
