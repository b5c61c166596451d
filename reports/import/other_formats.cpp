#include "reports/import/other_formats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/base/text.hpp"
#include "reports/import/log_text.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kReadInstead =
    "lines of JSON, {\"step\": 1, \"loss\": 2.5, ...} each, are read";

constexpr std::string_view kExpected = "expected a log, a trace, a snapshot, a result or a store";

bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool holds_all(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::all_of(parts, [&](std::string_view part) { return holds(text, part); });
}

/// verl/utils/logger/aggregate_logger.py: "step:1 - actor/loss:0.5 - perf/throughput:900.1"; Ray
/// puts "(TaskRunner pid=1234) " before it.
bool is_of_verl(std::string_view line) {
  constexpr std::string_view key = "step:";
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return false;
  std::string_view rest;
  if (!leading_number(line.substr(at + key.size()), &rest) || !rest.starts_with(" - "))
    return false;
  const std::string_view first = rest.substr(3, rest.find(' ', 3) - 3);
  return holds(first, "/") && holds(first, ":");
}

/// deepspeed/utils/timer.py: ThroughputTimer.stop(); deepspeed/runtime/engine.py:
/// _report_progress(): "[Rank 0] step=10, skipped=0, lr=[9.6e-06], mom=[(0.9, 0.95)]".
bool is_of_deepspeed(std::string_view line) {
  return holds_all(line, {"global_step=", "RunningAvgSamplesPerSec="}) ||
         holds_all(line, {"step=", ", skipped=", ", lr=["});
}

/// "Training epoch 0, iteration 5/99 | lr: 0.0003 | global_step: 5 | reduced_train_loss: 11.03 |
/// train_step_timing in s: 4.2", or the same with "=" in a bar of progress.
bool is_of_nemo(std::string_view line) {
  return holds_all(line, {"reduced_train_loss", "global_step"});
}

/// transformers/trainer_callback.py, ProgressCallback.on_log() prints a dict of Python:
/// "{'loss': 1.84, 'grad_norm': 2.03, 'learning_rate': 1.6e-06, 'epoch': 0.01}".
bool is_of_trainer(std::string_view line) {
  return holds(line, "'epoch': ") && (holds(line, "{'loss': ") || holds(line, "{'eval_loss': ") ||
                                      holds(line, "{'train_runtime': "));
}

/// The fields of a line of CSV, without quotes.
std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += c;
  }
  return fields;
}

bool is_number(const std::string& field) {
  std::string_view rest;
  return leading_number(field, &rest) && trimmed_text(rest).empty();
}

/// "a", "b", "c" and 4 more.
std::string names_of(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(shown, names.size()); ++i)
    text += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", printable(names[i].substr(0, 40)));
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

/// A figure of a chart is "RUN - METRIC", and where runs are grouped also "RUN - METRIC__MIN".
bool is_chart_of_wandb(const std::vector<std::string>& names) {
  const bool over_steps = names.front() == "Step" || names.front().starts_with("Relative Time") ||
                          names.front() == "Wall Time";
  return over_steps && std::all_of(names.begin() + 1, names.end(),
                                   [](const std::string& name) { return holds(name, " - "); });
}

}  // namespace

OtherFormat other_binary(std::string_view bytes) {
  if (bytes.starts_with("PK\x03\x04"))
    return fmt::format("a zip archive, as torch.save writes of a checkpoint: {}", kExpected);
  if (bytes.starts_with(":W&B"))
    return fmt::format("the file of a run that W&B's client keeps, which is not read yet; {}",
                       kReadInstead);
  if (bytes.starts_with("PAR1"))
    return fmt::format("a Parquet file, which is not read; {}", kReadInstead);
  return std::nullopt;
}

OtherFormat other_log(std::string_view line) {
  if (is_of_verl(line))
    return fmt::format("a log of verl, which is not read yet; {}", kReadInstead);
  if (is_of_deepspeed(line))
    return fmt::format(
        "a log of DeepSpeed, which is not read yet: its lines state no loss, and samples/s but no "
        "tokens; {}",
        kReadInstead);
  if (is_of_nemo(line))
    return "a log of NeMo, which is not read yet; its TensorBoard events (events.out.tfevents.*) "
           "are";
  if (is_of_trainer(line))
    return "what Hugging Face's Trainer prints, without the number of a step: import the "
           "trainer_state.json of its last checkpoint";
  return std::nullopt;
}

OtherFormat other_json(std::string_view text) {
  const auto has = [&](std::string_view key) { return has_json_key(text, key); };
  if (text.starts_with('['))
    return holds(text, "\"ph\"") ? "a list of trace events: expected them as \"traceEvents\" of an "
                                   "object, as PyTorch's profiler writes"
                                 : "one list of JSON: expected an object, or an object a line";
  if (holds(text, "\"mfsdp.") && has("schema") && !holds(text, "\"mfsdp.result/1\""))
    return "an output of mfsdp without a run: expected its mfsdp.result/1";
  if (has("_wandb") && has("_runtime"))
    return fmt::format("the summary of a run of W&B, which has each figure's last value alone; {}",
                       kReadInstead);
  if (has("train_runtime") && !has("step"))
    return "what Hugging Face's Trainer sums up at the end, without steps: import the "
           "trainer_state.json beside it";
  if (has("train_micro_batch_size_per_gpu") || has("zero_optimization"))
    return fmt::format("a configuration of DeepSpeed: {}", kExpected);
  if (has("architectures") && has("model_type"))
    return fmt::format("the configuration of a model: {}", kExpected);
  return std::nullopt;
}

OtherFormat other_table(std::string_view text) {
  std::vector<std::vector<std::string>> rows;
  for_each_line(text.substr(0, std::size_t{1} << 16), [&](std::string_view line, std::int64_t) {
    if (rows.size() < 2 && !trimmed_text(line).empty()) rows.push_back(csv_fields(line));
  });
  const bool is_table = rows.size() == 2 && rows[0].size() > 1 && rows[0].size() == rows[1].size();
  if (!is_table || std::ranges::any_of(rows[0], is_number) ||
      std::ranges::none_of(rows[1], is_number))
    return std::nullopt;
  const std::vector<std::string>& names = rows[0];
  const auto has = [&](std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  if (has("_step") && (has("_runtime") || has("_timestamp")))
    return fmt::format("a history of W&B as CSV, which is not read yet; {}", kReadInstead);
  if (is_chart_of_wandb(names))
    return fmt::format("the CSV of one chart of W&B ({}), which is not read yet; {}",
                       names_of({names.begin() + 1, names.end()}), kReadInstead);
  if (has("Wall time") && has("Step") && has("Value"))
    return "a CSV of one figure that TensorBoard's page exports: import the event file "
           "(events.out.tfevents.*) itself";
  return fmt::format("a CSV with the columns {}, which is not read; {}", names_of(names),
                     kReadInstead);
}

bool has_json_key(std::string_view text, std::string_view key) {
  const std::string quoted = fmt::format("\"{}\"", key);
  for (std::size_t at = text.find(quoted); at != std::string_view::npos;
       at = text.find(quoted, at + 1)) {
    const std::size_t next = text.find_first_not_of(" \t\r\n", at + quoted.size());
    if (next != std::string_view::npos && text[next] == ':') return true;
  }
  return false;
}

}  // namespace mfsdp
