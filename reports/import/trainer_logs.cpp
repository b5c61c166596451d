// Logs of torchtitan and Megatron-LM.

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "reports/import/foreign_run.hpp"
#include "reports/import/log_text.hpp"

namespace mfsdp {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr double kMiB = 1048576.0;

// ---- torchtitan ---------------------------------------------------------------------------------
//
// torchtitan/components/metrics.py, MetricsProcessor.log():
//   step: 10  loss:  7.07623  grad_norm: 46.5000  memory: 66.91GiB(37.51%)  tps: 10,007
//   tflops: 313.36  mfu: 13.93%
// after "[rank0]:[titan] 2025-06-16 22:30:50,322 - root - INFO - ", with colours on a terminal.
// `memory` is max_reserved_gib, `tps` of one device. Older versions have no grad_norm. Every rank
// that logs writes its own line: the first one of a step counts. Time comes from the clock of the
// rank's lines; a line is of all steps since the one before. A log may be continued by a run that
// was started again: its first line has no time, since the one before it is of a run that ended.

struct ClockOfSteps {
  std::optional<std::int64_t> step;
  std::int64_t at = 0;
};

using ClocksOfRanks = std::map<std::string, ClockOfSteps, std::less<>>;

/// "[rank0]" of "[rank0]:[titan] ..."; empty where the line does not begin so.
std::string_view rank_of(std::string_view line) {
  if (!line.starts_with("[rank")) return {};
  return line.substr(0, line.find(':'));
}

/// Whether a run logs this line at its start, before its first step.
bool is_titan_start(std::string_view line) {
  constexpr std::array<std::string_view, 3> marks{" capacity: ", "device mesh with [",
                                                  "Training starts at step"};
  return std::ranges::any_of(
      marks, [&](std::string_view mark) { return line.find(mark) != std::string_view::npos; });
}

void read_titan_setup(std::string_view line, ForeignRun& run) {
  // build_device_memory_monitor(): "CUDA capacity: NVIDIA H100 with 79.11GiB memory"
  if (const std::size_t at = line.find(" capacity: "); at != std::string_view::npos) {
    const std::string_view rest = line.substr(at + 11);
    const std::size_t with = rest.find(" with ");
    if (with != std::string_view::npos) {
      run.gpu = std::string(rest.substr(0, with));
      if (const auto capacity = bytes_of_units(leading_number(rest.substr(with + 6)), kGiB))
        run.capacity = *capacity;
    }
  }
  // train.py: "Model llama3 8B size: 8,030,261,248 total parameters"
  const std::size_t model = line.find("Model ");
  const std::size_t size = line.find(" size: ");
  if (model != std::string_view::npos && size != std::string_view::npos && size > model + 6 &&
      line.find("total parameters") != std::string_view::npos) {
    run.model_name = std::string(line.substr(model + 6, size - model - 6));
    run.parameters = whole(leading_number(line.substr(size + 7)), kMostSteps);
  }
  // distributed/parallel_dims.py: "Building 1-D device mesh with ['dp_shard'], [8]"
  if (const std::size_t mesh = line.find("device mesh with ["); mesh != std::string_view::npos) {
    const std::size_t sizes = line.rfind('[');
    std::int64_t product = 1;
    std::string_view rest = sizes > mesh + 17 ? line.substr(sizes + 1) : std::string_view();
    bool good = !rest.empty();
    while (good && !rest.empty() && rest.front() != ']') {
      const auto value = whole(leading_number(rest, &rest), 1e6);
      good = value && *value > 0 && product < 1'000'000'000;
      if (good) product *= *value;
      while (!rest.empty() && (rest.front() == ',' || rest.front() == ' ')) rest.remove_prefix(1);
    }
    if (good) run.gpus = product;
  }
  if (line.find("Applied FSDP") != std::string_view::npos ||
      line.find("Applied HSDP") != std::string_view::npos)
    run.engine = "torchtitan (FSDP2)";
}

/// Seconds of each step since the rank's line before; none of a rank's first line, and none where
/// the number does not go forward: a run has started again.
std::optional<double> seconds_since(ClockOfSteps& clock, std::int64_t number, std::int64_t at) {
  const ClockOfSteps before = std::exchange(clock, {.step = number, .at = at});
  if (!before.step || number <= *before.step || at <= before.at) return std::nullopt;
  return static_cast<double>(at - before.at) / 1e9 / static_cast<double>(number - *before.step);
}

/// Names the keys of a step's line, "max_loss:", that no figure is for.
void leave_out_titan_keys(std::string_view line, ForeignRun& run) {
  constexpr std::array<std::string_view, 7> known{"step", "loss",   "grad_norm", "memory",
                                                  "tps",  "tflops", "mfu"};
  line.remove_prefix(std::min(line.find("step:"), line.size()));
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    const std::string_view key = word.substr(0, word.find(':'));
    const bool is_key = !key.empty() && key.size() + 1 == word.size() &&
                        leading_number(line.substr(end)).has_value();
    if (is_key && std::ranges::find(known, key) == known.end()) run.leave_out(key);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
}

void read_titan_step(std::string_view line, std::int64_t number, ClockOfSteps& clock,
                     ForeignRun& run) {
  const auto at = time_in(line);
  const auto seconds = at ? seconds_since(clock, number, *at) : std::nullopt;
  if (run.steps.contains(number)) return;
  if (!run.created_unix_ns) run.created_unix_ns = at;
  ForeignStep step;
  step.seconds = seconds;
  step.loss = number_after(line, "loss:");
  step.grad_norm = number_after(line, "grad_norm:");
  step.tokens_per_second = number_after(line, "tps:");
  step.tflops = number_after(line, "tflops:");
  if (const auto percent = number_after(line, "mfu:")) step.mfu = *percent / 100;
  if (const auto reserved = bytes_of_units(number_after(line, "memory:"), kGiB))
    keep_largest(run.reserved, *reserved);
  run.steps.emplace(number, step);
  leave_out_titan_keys(line, run);
}

}  // namespace

Result<ForeignRun> read_torchtitan_log(std::string_view text, const std::string& where) {
  ForeignRun run{.engine = "torchtitan", .format = "torchtitan log"};
  ClocksOfRanks clocks;
  for_each_line(text, [&](std::string_view raw, std::int64_t) {
    const std::string line = without_colours(raw);
    const bool validates = line.find("validate step:") != std::string::npos;
    const auto number = whole(number_after(line, "step:"), kMostSteps);
    const auto loss = number_after(line, "loss:");
    ClockOfSteps& clock = clocks[std::string(rank_of(line))];
    if (!number || !loss) {
      if (is_titan_start(line)) clock = {};
      return read_titan_setup(line, run);
    }
    if (validates) {
      run.validation_losses.emplace(*number, *loss);
      return;
    }
    read_titan_step(line, *number, clock, run);
  });
  if (run.steps.empty())
    return fail(where, "holds no line of a step: expected \"step: 10  loss:  7.0762  ...\"");
  return run;
}

// ---- Megatron-LM --------------------------------------------------------------------------------
//
// megatron/training/training.py, training_log():
//   [2024-04-06 02:59:36] iteration       43/     100 | consumed samples:         5504 | elapsed
//   time per iteration (ms): 5444.9 | throughput per GPU (TFLOP/s/GPU): 239.8 | learning rate:
//   8.600000E-06 | global batch size:   128 | lm loss: 1.825991E+00 | loss scale: 1.0 | grad norm:
//   1.426 | number of skipped iterations:   0 | number of nan iterations:   0 |
// The time in front came with 2024's versions. report_memory() in megatron/training/utils.py:
//   [Rank 0] (after 2 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 3.0
//   | max reserved: 4.0
// where a MB is 2^20 bytes. Arguments are printed as "  seq_length ............ 8192".
// evaluate_and_print_results(), older versions without the set's name, the last ones of a test set:
//    validation loss at iteration 1000 on validation set | lm loss value: 2.561012E+00 | lm loss
//   PPL: 1.294891E+01 |

namespace {

/// The name and value of a printed argument; empty where the line is none.
std::pair<std::string_view, std::string_view> printed_argument(std::string_view line) {
  const std::size_t dots = line.find(" ..");
  if (dots == std::string_view::npos) return {};
  std::size_t begin = line.rfind(' ', dots == 0 ? 0 : dots - 1);
  begin = begin == std::string_view::npos ? 0 : begin + 1;
  const std::size_t end = line.find_first_not_of('.', dots + 1);
  if (end == std::string_view::npos || line[end] != ' ') return {};
  return {line.substr(begin, dots - begin), trimmed_text(line.substr(end))};
}

constexpr std::array<std::string_view, 14> kKeptArguments{"seq_length",
                                                          "micro_batch_size",
                                                          "global_batch_size",
                                                          "num_layers",
                                                          "hidden_size",
                                                          "tensor_model_parallel_size",
                                                          "pipeline_model_parallel_size",
                                                          "lr",
                                                          "min_lr",
                                                          "weight_decay",
                                                          "adam_beta1",
                                                          "adam_beta2",
                                                          "seed",
                                                          "data_parallel_sharding_strategy"};

FactValue value_of_argument(std::string_view text) {
  std::string_view rest;
  if (const auto number = leading_number(text, &rest); number && rest.empty()) {
    const bool integer = text.find_first_not_of("0123456789-") == std::string_view::npos &&
                         std::abs(*number) < kMostSteps;
    if (integer) return static_cast<std::int64_t>(*number);
    if (std::isfinite(*number)) return *number;
  }
  return std::string(text);
}

void read_megatron_argument(std::string_view line, ForeignRun& run) {
  const auto [name, value] = printed_argument(line);
  if (name.empty()) return;
  if (name == "world_size") run.gpus = whole(leading_number(value), 1e7);
  const bool fsdp = (name == "use_megatron_fsdp" || name == "use_custom_fsdp") && value == "True";
  if (fsdp) run.engine = "megatron-fsdp";
  if (std::ranges::find(kKeptArguments, name) != kKeptArguments.end())
    run.fact(std::string(name), value_of_argument(value));
}

void read_megatron_memory(std::string_view line, ForeignRun& run) {
  if (const auto peak = bytes_of_units(number_after(line, "max allocated:"), kMiB))
    keep_largest(run.peak, *peak);
  if (const auto reserved = bytes_of_units(number_after(line, "max reserved:"), kMiB))
    keep_largest(run.reserved, *reserved);
}

void read_megatron_field(std::string_view name, std::string_view value, ForeignRun& run,
                         ForeignStep& step) {
  const auto number = leading_number(value);
  if (!number) return;
  if (name == "elapsed time per iteration (ms)")
    step.seconds = *number / 1000;
  else if (name.starts_with("throughput per GPU (TFLOP/s/GPU)"))
    step.tflops = number;
  else if (name == "learning rate")
    step.learning_rate = number;
  else if (name == "lm loss")
    step.loss = number;
  else if (name == "grad norm")
    step.grad_norm = number;
  else if (name == "number of skipped iterations")
    step.skipped = *number > 0;
  else if (name != "global batch size")
    run.leave_out(name);
  if (name != "global batch size") return;
  const Fact* length = find_fact(run.facts, "import", "seq_length");
  const auto* tokens = length != nullptr ? std::get_if<std::int64_t>(&length->value) : nullptr;
  if (tokens != nullptr && *tokens > 0 && *number * static_cast<double>(*tokens) < kMostSteps)
    step.tokens = static_cast<std::int64_t>(*number) * *tokens;
}

void read_megatron_validation(std::string_view line, ForeignRun& run) {
  if (line.find("on test set") != std::string_view::npos) return;
  const auto iteration = whole(number_after(line, "iteration"), kMostSteps);
  const auto loss = number_after(line, "lm loss value:");
  if (iteration && loss) run.validation_losses.emplace(*iteration, *loss);
}

/// Where the line's iteration begins: "iteration       43/     100 |"; none in other lines.
std::optional<std::int64_t> iteration_of(std::string_view line) {
  const std::size_t at = line.find("iteration ");
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest;
  const auto number = leading_number(line.substr(at + 10), &rest);
  if (!rest.starts_with('/')) return std::nullopt;
  return whole(number, kMostSteps);
}

}  // namespace

Result<ForeignRun> read_megatron_log(std::string_view text, const std::string& where) {
  ForeignRun run{.engine = "megatron-lm", .format = "Megatron-LM log"};
  for_each_line(text, [&](std::string_view raw, std::int64_t) {
    const std::string line = without_colours(raw);
    if (line.find("max reserved:") != std::string::npos) return read_megatron_memory(line, run);
    if (line.find("validation loss at ") != std::string::npos)
      return read_megatron_validation(line, run);
    const auto iteration = iteration_of(line);
    if (!iteration) return read_megatron_argument(line, run);
    ForeignStep step;
    std::string_view rest = line;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('|'), rest.size());
      const std::string_view field = trimmed_text(rest.substr(0, end));
      if (const std::size_t colon = field.rfind(": "); colon != std::string_view::npos)
        read_megatron_field(trimmed_text(field.substr(0, colon)), field.substr(colon + 1), run,
                            step);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (!run.created_unix_ns) run.created_unix_ns = time_in(line);
    if (step.loss || step.seconds) run.steps.emplace(*iteration, step);
  });
  if (run.steps.empty())
    return fail(where,
                "holds no line of an iteration: expected \"iteration  43/ 100 | ... | lm loss: "
                "1.825991E+00 | ...\"");
  return run;
}

}  // namespace mfsdp
