// Event files of TensorBoard.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/formats/read_events.hpp"
#include "reports/import/foreign_run.hpp"
#include "reports/record/origin.hpp"

namespace mfsdp {
namespace {

constexpr double kBytesPerGiB = 1073741824.0;

/// What evaluations are called: torchtitan's name, which our own export writes too, Megatron-LM's
/// (evaluate_and_print_results()), and others'.
constexpr std::array<std::string_view, 5> kValidationTags{
    "validation_metrics/loss", "lm loss validation", "eval/loss", "val/loss", "val_loss"};

/// What a tag's value is of a step.
using StepMember = std::optional<double> ForeignStep::*;

struct KnownTag {
  std::string_view tag;
  StepMember member;
  double unit = 1;  ///< that the value is multiplied with
};

/// torchtitan: MetricsProcessor.log() in torchtitan/components/metrics.py. Megatron-LM:
/// training_log() in megatron/training/training.py. Others: what people call them.
constexpr std::array kKnownTags{KnownTag{"loss_metrics/global_avg_loss", &ForeignStep::loss},
                                KnownTag{"throughput(tps)", &ForeignStep::tokens_per_second},
                                KnownTag{"tflops", &ForeignStep::tflops},
                                KnownTag{"mfu(%)", &ForeignStep::mfu, 0.01},
                                KnownTag{"time_metrics/end_to_end(s)", &ForeignStep::seconds},
                                KnownTag{"grad_norm", &ForeignStep::grad_norm},
                                KnownTag{"lr", &ForeignStep::learning_rate},
                                KnownTag{"lm loss", &ForeignStep::loss},
                                KnownTag{"grad-norm", &ForeignStep::grad_norm},
                                KnownTag{"learning-rate", &ForeignStep::learning_rate},
                                KnownTag{"iteration-time", &ForeignStep::seconds},
                                KnownTag{"throughput", &ForeignStep::tflops},
                                KnownTag{"loss", &ForeignStep::loss},
                                KnownTag{"train/loss", &ForeignStep::loss},
                                KnownTag{"Loss/train", &ForeignStep::loss},
                                KnownTag{"train_loss", &ForeignStep::loss},
                                KnownTag{"train/grad_norm", &ForeignStep::grad_norm},
                                KnownTag{"learning_rate", &ForeignStep::learning_rate},
                                KnownTag{"train/learning_rate", &ForeignStep::learning_rate}};

void read_memory_tag(const EventScalar& scalar, ForeignRun& run) {
  const double bytes = scalar.value * kBytesPerGiB;
  if (!(bytes >= 0) || bytes > 1e18) return;
  if (scalar.tag == "memory/max_active(GiB)") keep_largest(run.peak, Bytes(std::llround(bytes)));
  if (scalar.tag == "memory/max_reserved(GiB)")
    keep_largest(run.reserved, Bytes(std::llround(bytes)));
}

}  // namespace

Result<ForeignRun> read_tensorboard(std::string_view bytes, const std::string& where) {
  MFSDP_LET(events, read_events(bytes, where));
  const std::vector<EventScalar>& scalars = events.scalars;
  ForeignRun run{.engine = "unknown", .format = "TensorBoard events"};
  if (const auto mark = std::ranges::find(events.texts, kOriginTag, &EventText::tag);
      mark != events.texts.end()) {
    MFSDP_LET(origin, parse_origin(mark->text, fmt::format("{}: {}", where, kOriginTag)));
    run.origin = std::move(origin);
  }
  for (const EventScalar& scalar : scalars) {
    if (scalar.tag == "loss_metrics/global_avg_loss") run.engine = "torchtitan";
    if (scalar.tag == "lm loss") run.engine = "megatron-lm";
    read_memory_tag(scalar, run);
    if (scalar.step < 0) continue;
    if (std::ranges::find(kValidationTags, scalar.tag) != kValidationTags.end())
      run.validation_losses.insert_or_assign(scalar.step, scalar.value);
    for (const KnownTag& known : kKnownTags)
      if (known.tag == scalar.tag) run.steps[scalar.step].*known.member = scalar.value * known.unit;
    const bool has_time = scalar.wall_time > 0 && scalar.wall_time < 7e9;
    if (!run.created_unix_ns && has_time)
      run.created_unix_ns = static_cast<std::int64_t>(scalar.wall_time * 1e9);
  }
  if (!run.steps.empty()) return run;
  std::string tags;
  for (std::size_t i = 0; i < scalars.size() && i < 3; ++i)
    tags += fmt::format("{}\"{}\"", tags.empty() ? "" : ", ", scalars[i].tag);
  return fail(where, scalars.empty() ? "holds no scalars"
                                     : fmt::format("holds no scalar with a tag such as \"loss\", "
                                                   "\"grad_norm\" or \"lr\", but {}",
                                                   tags));
}

}  // namespace mfsdp
