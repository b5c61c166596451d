// Steps as objects of JSON: an object a line, or the log of Hugging Face's Trainer.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "reports/import/foreign_run.hpp"
#include "reports/import/log_text.hpp"
#include "reports/import/python_json.hpp"
#include "reports/record/rates.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kStepFault = "expected a whole number of a step, from 0 to 1e15";

using Keys = std::initializer_list<std::string_view>;

/// The figures of a step in an object. A text in the place of a number is remembered as a fault.
class StepObject {
 public:
  explicit StepObject(const nlohmann::json& object) : object_(object) {}

  /// The first of the keys that has a number, which may not be finite.
  std::optional<double> number(Keys keys) {
    for (const std::string_view key : keys) {
      const auto found = object_.find(key);
      if (found == object_.end()) continue;
      read_.emplace(key);
      if (const auto number = python_number(*found)) return number;
      if (found->is_string() && fault_.empty())
        fault_ = fmt::format("{}: expected a number, got a text", key);
    }
    return std::nullopt;
  }
  /// The same; none where it is not finite.
  std::optional<double> finite(Keys keys) {
    const auto found = number(keys);
    return found && std::isfinite(*found) ? found : std::nullopt;
  }
  bool is_true(std::string_view key) {
    const auto found = object_.find(key);
    read_.emplace(key);
    return found != object_.end() && found->is_boolean() && found->get<bool>();
  }
  /// Records in the run the numbers, and objects that may have some, that no reader used.
  void leave_out_the_rest(ForeignRun& run) const {
    for (const auto& [key, value] : object_.items())
      if ((value.is_number() || value.is_object()) && !read_.contains(key)) run.leave_out(key);
  }
  [[nodiscard]] const std::string& fault() const { return fault_; }

 private:
  const nlohmann::json& object_;
  std::set<std::string, std::less<>> read_;
  std::string fault_;
};

ForeignStep step_of(StepObject& line) {
  ForeignStep step;
  step.loss =
      line.number({"loss", "train_loss", "train/loss", "lm loss", "loss_metrics/global_avg_loss"});
  step.grad_norm = line.number({"grad_norm", "gradient_norm", "train/grad_norm", "grad norm"});
  step.learning_rate = line.finite({"learning_rate", "lr", "train/learning_rate"});
  step.seconds =
      line.finite({"step_time", "step_seconds", "seconds", "time_s", "time_metrics/end_to_end(s)"});
  if (const auto nanos = line.finite({"step_ns"})) step.seconds = *nanos / 1e9;
  if (const auto millis = line.finite({"step_ms", "time_ms", "step_time_ms"}))
    step.seconds = *millis / 1e3;
  step.tokens = whole(line.finite({"tokens"}), kMostSteps);
  step.tokens_per_second = line.finite({"tokens_per_second_per_gpu", "tps", "throughput(tps)"});
  step.tflops = line.finite({"tflops_per_gpu", "tflops"});
  step.mfu = line.finite({"mfu"});
  if (const auto percent = line.finite({"mfu(%)"})) step.mfu = *percent / 100;
  step.skipped = line.is_true("skipped");
  return step;
}

bool has_figure(const ForeignStep& step) {
  return step.loss || step.grad_norm || step.learning_rate || step.seconds || step.tokens ||
         step.tokens_per_second || step.tflops || step.mfu;
}

/// Why a step cannot have the number; empty if it can.
std::string_view fault_of(double number, const ForeignStep& step) {
  const bool counts = number >= 0 && number <= kMostSteps && number == std::floor(number);
  if (!counts) return kStepFault;
  for (const auto& rate : {step.seconds, step.tokens_per_second, step.tflops})
    if (rate && !(*rate >= 0 && *rate <= kMostSteps))
      return "expected times and rates from 0 to 1e15";
  if (step.mfu && !(*step.mfu >= 0 && *step.mfu <= kMostMfu))
    return "expected an mfu from 0 to 2: \"mfu(%)\" is in per cent";
  return {};
}

void read_step_memory(StepObject& line, ForeignRun& run) {
  if (const auto reserved = bytes_of_units(line.finite({"memory_bytes", "reserved_bytes"}), 1))
    keep_largest(run.reserved, *reserved);
  if (const auto peak = bytes_of_units(line.finite({"peak_bytes", "active_bytes"}), 1))
    keep_largest(run.peak, *peak);
}

/// Whether the line has data of its step; the error describes a fault in it. An object without a
/// step is another event.
Result<bool> read_step_line(std::string_view text, const std::string& place, ForeignRun& run) {
  const auto object = parse_python_json(text);
  if (!object.is_object()) return fail(place, "expected a JSON object of a step");
  StepObject line(object);
  const auto number = line.number({"step", "iteration", "_step", "global_step"});
  if (!number) return false;
  const ForeignStep step = step_of(line);
  const auto evaluation =
      line.number({"eval_loss", "val_loss", "validation_loss", "eval/loss", "val/loss"});
  read_step_memory(line, run);
  line.leave_out_the_rest(run);
  if (const std::string_view fault = fault_of(*number, step); !fault.empty())
    return fail(place, std::string(fault));
  if (!line.fault().empty()) return fail(place, line.fault());
  const auto at = static_cast<std::int64_t>(*number);
  if (evaluation) run.validation_losses.insert_or_assign(at, *evaluation);
  const bool is_step = has_figure(step) || !evaluation;
  if (is_step && !run.steps.emplace(at, step).second)
    return fail(place, fmt::format("step {} is there twice", at));
  return has_figure(step) || evaluation;
}

}  // namespace

Result<ForeignRun> read_step_lines(std::string_view text, const std::string& where) {
  ForeignRun run{.engine = "unknown", .format = "lines of JSON"};
  Result<void> outcome;
  bool any = false;  // whether a line has data of its step
  for_each_line(text, [&](std::string_view line, std::int64_t at) {
    if (!outcome || trimmed_text(line).empty()) return;
    const auto said = read_step_line(line, fmt::format("{}:{}", where, at), run);
    if (!said) outcome = tl::unexpected<Error>(said.error());
    any = any || (said && *said);
  });
  MFSDP_TRY(outcome);
  if (!any)
    return fail(where, "holds no object of a step: expected {\"step\": 1, \"loss\": 2.5, ...}");
  return run;
}

// ---- Hugging Face's Trainer ---------------------------------------------------------------------
//
// transformers/trainer_callback.py: TrainerState, saved as trainer_state.json in each checkpoint.
// Its log_history is a list of what Trainer.log() was given, each with the number of the step:
//   {"epoch": 0.01, "grad_norm": 2.03, "learning_rate": 1.6e-06, "loss": 1.84, "step": 10}
//   {"epoch": 0.01, "eval_loss": 1.75, "eval_runtime": 3.1, ..., "step": 20}
// `loss` is the mean of the steps since the entry before. The last entry of a training that has
// ended sums it up: train_loss, a mean over all steps, train_runtime in seconds, and rates.

namespace {

/// Puts the figures of a later entry of one step where the earlier ones have none.
void add_figures(ForeignStep& step, const ForeignStep& more) {
  if (!step.loss) step.loss = more.loss;
  if (!step.grad_norm) step.grad_norm = more.grad_norm;
  if (!step.learning_rate) step.learning_rate = more.learning_rate;
}

Result<void> read_trainer_entry(const nlohmann::json& object, const std::string& place,
                                ForeignRun& run) {
  if (!object.is_object()) return fail(place, "expected a JSON object of a step");
  StepObject entry(object);
  const auto number = entry.number({"step"});
  if (!number || !fault_of(*number, {}).empty()) return fail(place, std::string(kStepFault));
  if (const auto runtime = entry.finite({"train_runtime"})) {
    run.fact("train_runtime_seconds", *runtime);
    return {};
  }
  ForeignStep step;
  step.loss = entry.number({"loss"});
  step.grad_norm = entry.number({"grad_norm"});
  step.learning_rate = entry.finite({"learning_rate"});
  const auto evaluation = entry.number({"eval_loss"});
  if (!entry.fault().empty()) return fail(place, entry.fault());
  const auto at = static_cast<std::int64_t>(*number);
  if (evaluation) run.validation_losses.insert_or_assign(at, *evaluation);
  if (has_figure(step)) add_figures(run.steps[at], step);
  entry.leave_out_the_rest(run);
  return {};
}

}  // namespace

Result<ForeignRun> read_trainer_state(std::string_view text, const std::string& where) {
  ForeignRun run{.engine = "hf-trainer", .format = "state of Hugging Face's Trainer"};
  const auto state = parse_python_json(text);
  const auto log = state.is_object() ? state.find("log_history") : state.end();
  if (log == state.end() || !log->is_array())
    return fail(where, "expected an object with the list \"log_history\" (trainer_state.json)");
  for (std::size_t i = 0; i < log->size(); ++i)
    MFSDP_TRY(read_trainer_entry((*log)[i], fmt::format("{}: log_history[{}]", where, i), run));
  if (run.steps.empty() && run.validation_losses.empty())
    return fail(where, "its log_history holds no step with a loss: see logging_steps");
  constexpr std::array<const char*, 3> kept{"max_steps", "train_batch_size", "logging_steps"};
  for (const char* const key : kept)
    if (const auto found = state.find(key); found != state.end() && found->is_number_integer())
      run.fact(key, found->get<std::int64_t>());
  return run;
}

}  // namespace mfsdp
