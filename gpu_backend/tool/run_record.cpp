#include "gpu_backend/tool/run_record.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "gpu_backend/checkpoint/disk.hpp"
#include "reports/record/rates.hpp"
#include "reports/record/step_figures.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

/// A commit takes milliseconds, a step of a small model takes less.
constexpr std::chrono::milliseconds kStorePause{250};

/// Values that are no numbers, which JSON does not have, become null; bytes of a path that are no
/// UTF-8 become U+FFFD.
std::string json_line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string number(double value, int decimals) {
  return std::isnan(value) ? "nan" : fmt::format("{:.{}f}", value, decimals);
}

/// As many decimals, up to `decimals`, as fit into `width` characters. Powers of ten if the value
/// is too long, or would show as zero.
std::string fitted(double value, std::size_t width, int decimals) {
  const bool vanishes = value != 0 && std::abs(value) < std::pow(10, -decimals);
  for (; decimals >= 0 && !vanishes; --decimals)
    if (std::string text = number(value, decimals); text.size() <= width) return text;
  return fmt::format("{:.0e}", value);
}

/// " scale: 65536", or nothing if the loss is not scaled.
std::string scale_of(double scale) { return scale == 0 ? "" : fmt::format(" scale: {:>6}", scale); }

}  // namespace

RunRecord::RunRecord(const ExecOptions& options, const Session& session, MeasuredRun head,
                     std::function<Bytes()> allocated, std::optional<double> peak_tflops,
                     std::atomic<bool>& unread)
    : options_(options),
      session_(session),
      store_(options.common, session),
      head_(std::move(head)),
      allocated_(std::move(allocated)),
      peak_tflops_(peak_tflops),
      unread_(unread),
      progress_(session.err, "steps", options.steps) {}

Result<void> RunRecord::begin() { return store_.begin(head_); }

/// Wipes the progress line first, so that the two do not mix.
void RunRecord::say(const std::string& line) {
  wipe_progress(session_.err);
  session_.err << std::flush;
  if (!(session_.out << line << std::flush)) unread_ = true;
}

/// In the order of torchtitan's lines, within 100 columns. Omits the rates of a step that updated
/// nothing, and the share of the peak if the peak is unknown.
std::string RunRecord::line_of(const StepReport& report) const {
  std::string line = fmt::format("step: {:>6} loss: {:>6} grad_norm: {:>6} memory: {:>6}GiB",
                                 report.step, fitted(report.loss, 6, 4),
                                 fitted(report.grad_norm, 6, 4), format_gib(allocated_()));
  if (report.non_finite)
    return line + " gradient not finite" + (skips() ? ", step skipped" : "") +
           scale_of(report.loss_scale) + "\n";
  const Rates rates = rates_of(head_, report.duration);
  line += fmt::format(" tps: {:>7} tflops: {:>5}",
                      fitted(rates.tokens_per_second, 7, rates.tokens_per_second < 100 ? 2 : 0),
                      fitted(rates.tflops, 5, 3));
  if (peak_tflops_) line += " mfu: " + format_percent(rates.tflops / *peak_tflops_);
  return line + scale_of(report.loss_scale) + "\n";
}

Result<void> RunRecord::step(const StepReport& report) {
  const StepResult result{
      .step = report.step,
      .duration = report.duration,
      .loss = report.loss,
      .grad_norm = report.grad_norm,
      .tokens = report.tokens,
      .learning_rate = report.learning_rate,
      .loss_scale = report.loss_scale == 0 ? std::nullopt : std::optional(report.loss_scale),
      .skipped = report.non_finite && skips()};
  all_.steps.push_back(result);
  pending_.steps.push_back(result);
  if (is_logged(report.step, options_.log_every, options_.steps)) {
    if (options_.common.output == OutputFormat::text) say(line_of(report));
    if (options_.common.output == OutputFormat::jsonl) {
      const Rates rates = rates_of(head_, report.duration);
      Json line{{"event", "step"},
                {"step", report.step},
                {"loss", report.loss},
                {"grad_norm", report.grad_norm},
                {"memory_bytes", allocated_().value},
                {"tokens_per_second_per_gpu", rates.tokens_per_second},
                {"tflops_per_gpu", rates.tflops},
                {"mfu", peak_tflops_ ? Json(rates.tflops / *peak_tflops_) : Json(nullptr)},
                {"learning_rate", report.learning_rate},
                {"clip_factor", report.clip_factor},
                {"tokens", report.tokens},
                {"seen_tokens", report.seen_tokens},
                {"non_finite", report.non_finite},
                {"skipped", result.skipped},
                {"step_ns", report.duration.value}};
      if (result.loss_scale) line["loss_scale"] = *result.loss_scale;
      say(json_line(line));
    }
  }
  progress_.at(report.step);
  if (std::chrono::steady_clock::now() - flushed_ >= kStorePause) flush();
  return {};
}

Result<void> RunRecord::evaluation(const EvalReport& report) {
  const EvaluationResult result{
      .step = report.after_step, .loss = report.loss, .tokens = report.tokens};
  all_.evaluations.push_back(result);
  pending_.evaluations.push_back(result);
  if (options_.common.output == OutputFormat::text)
    say(fmt::format("evaluation after step {}: loss {} over {} tokens in {}\n", report.after_step,
                    number(report.loss, 5), format_count(report.tokens),
                    format_duration(report.duration)));
  if (options_.common.output == OutputFormat::jsonl)
    say(json_line({{"event", "evaluation"},
                   {"step", report.after_step},
                   {"loss", report.loss},
                   {"tokens", report.tokens},
                   {"duration_ns", report.duration.value}}));
  flush();
  return {};
}

Result<void> RunRecord::saved(const SaveReport& report) {
  const std::string folder =
      (std::filesystem::path(*options_.save) / step_folder_name(report.after_step)).string();
  if (options_.common.output == OutputFormat::text)
    say(fmt::format("saved after step {}: {} in {}, {}\n", report.after_step,
                    format_bytes(report.written), format_duration(report.duration),
                    printable(folder)));
  if (options_.common.output == OutputFormat::jsonl)
    say(json_line({{"event", "save"},
                   {"step", report.after_step},
                   {"folder", folder},
                   {"bytes", report.written.value},
                   {"duration_ns", report.duration.value}}));
  return {};
}

Result<void> RunRecord::norms(std::int64_t step, std::span<const ParameterNorm> norms) {
  if (options_.common.output == OutputFormat::text)
    for (const ParameterNorm& norm : norms)
      say(fmt::format("  {:<48} weight {:>12}  gradient {:>12}\n", norm.name,
                      fmt::format("{:.5g}", norm.weight),
                      norm.gradient ? fmt::format("{:.5g}", *norm.gradient) : "frozen"));
  if (options_.common.output == OutputFormat::jsonl) {
    Json parameters = Json::array();
    for (const ParameterNorm& norm : norms)
      parameters.push_back({{"name", norm.name},
                            {"weight_norm", norm.weight},
                            {"grad_norm", norm.gradient ? Json(*norm.gradient) : Json(nullptr)}});
    say(json_line(
        {{"event", "parameter_norms"}, {"step", step}, {"parameters", std::move(parameters)}}));
  }
  return {};
}

void RunRecord::flush() {
  store_.append(std::exchange(pending_, {}));
  flushed_ = std::chrono::steady_clock::now();
}

void RunRecord::finish(MeasuredRun& result) {
  progress_.end();
  flush();
  result.steps = all_.steps;
  result.evaluations = all_.evaluations;
  set_step_figures(result, peak_tflops_);
  store_.finish(result);
}

}  // namespace mfsdp
