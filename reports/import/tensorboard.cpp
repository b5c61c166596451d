// Event files of TensorBoard.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "core/base/text.hpp"
#include "core/formats/read_events.hpp"
#include "reports/import/foreign_run.hpp"
#include "reports/record/origin.hpp"

namespace mfsdp {
namespace {

constexpr double kBytesPerGiB = 1073741824.0;

/// Tags of evaluations: torchtitan's, which mfsdp's own export writes too, Megatron-LM's
/// (evaluate_and_print_results()), NeMo's (val_loss), and others'.
constexpr std::array<std::string_view, 5> kValidationTags{
    "validation_metrics/loss", "lm loss validation", "eval/loss", "val/loss", "val_loss"};

/// The member of a step that holds a tag's value.
using StepMember = std::optional<double> ForeignStep::*;

struct KnownTag {
  std::string_view tag;
  StepMember member;
  double unit = 1;  ///< that the value is multiplied with
};

/// torchtitan: MetricsProcessor.log() in torchtitan/components/metrics.py. Megatron-LM:
/// training_log() in megatron/training/training.py. NeMo: MegatronLossReduction's name of the loss,
/// TimingCallback's of the time, FLOPsMeasurementCallback's of the rate. Others: what people call
/// them.
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
                                KnownTag{"reduced_train_loss", &ForeignStep::loss},
                                KnownTag{"train_step_timing in s", &ForeignStep::seconds},
                                KnownTag{"tflops_per_sec_per_gpu", &ForeignStep::tflops},
                                KnownTag{"loss", &ForeignStep::loss},
                                KnownTag{"train/loss", &ForeignStep::loss},
                                KnownTag{"Loss/train", &ForeignStep::loss},
                                KnownTag{"train_loss", &ForeignStep::loss},
                                KnownTag{"train/grad_norm", &ForeignStep::grad_norm},
                                KnownTag{"learning_rate", &ForeignStep::learning_rate},
                                KnownTag{"train/learning_rate", &ForeignStep::learning_rate}};

/// The maximum over a run, by torchtitan's tags, which mfsdp's own export writes too. The tags with
/// fractions of the device's memory add nothing.
bool read_memory_tag(const EventScalar& scalar, ForeignRun& run) {
  if (scalar.tag == "memory/max_active(%)" || scalar.tag == "memory/max_reserved(%)") return true;
  const bool is_active = scalar.tag == "memory/max_active(GiB)";
  if (!is_active && scalar.tag != "memory/max_reserved(GiB)") return false;
  const double bytes = scalar.value * kBytesPerGiB;
  if (bytes >= 0 && bytes <= 1e18)
    keep_largest(is_active ? run.peak : run.reserved, Bytes(std::llround(bytes)));
  return true;
}

/// The trainer that writes the tag; empty if several do.
std::string_view engine_of(std::string_view tag) {
  if (tag == "loss_metrics/global_avg_loss") return "torchtitan";
  if (tag == "lm loss") return "megatron-lm";
  if (tag == "reduced_train_loss") return "nemo";
  return {};
}

/// Stores the value in its member; false if a run has no member for the tag.
bool read_tag(const EventScalar& scalar, ForeignRun& run) {
  if (read_memory_tag(scalar, run)) return true;
  const bool validates = std::ranges::find(kValidationTags, scalar.tag) != kValidationTags.end();
  const auto known = std::ranges::find(kKnownTags, scalar.tag, &KnownTag::tag);
  if (!validates && known == kKnownTags.end()) return false;
  if (scalar.step < 0) return true;
  if (validates)
    run.validation_losses.insert_or_assign(scalar.step, scalar.value);
  else
    run.steps[scalar.step].*known->member = scalar.value * known->unit;
  return true;
}

}  // namespace

Result<ForeignRun> read_tensorboard(std::string_view bytes, const std::string& where) {
  MFSDP_LET(events, read_events(bytes, where));
  const std::vector<EventScalar>& scalars = events.scalars;
  ForeignRun run{.engine = "unknown", .format = "TensorBoard events"};
  if (const auto mark = std::ranges::find(events.texts, kOriginTag, &EventText::tag);
      mark != events.texts.end()) {
    MFSDP_SET(run.origin, parse_origin(mark->text, fmt::format("{}: {}", where, kOriginTag)));
  }
  for (const EventScalar& scalar : scalars) {
    if (const auto engine = engine_of(scalar.tag); !engine.empty()) run.engine = engine;
    if (!read_tag(scalar, run)) run.leave_out(scalar.tag);
    const bool has_time = scalar.wall_time > 0 && scalar.wall_time < 7e9;
    if (!run.created_unix_ns && has_time)
      run.created_unix_ns = static_cast<std::int64_t>(scalar.wall_time * 1e9);
  }
  if (!run.steps.empty()) return run;
  std::string tags;
  for (const std::string& tag : run.left_out)
    if (tags.size() < 80) tags += fmt::format("{}\"{}\"", tags.empty() ? "" : ", ", printable(tag));
  return fail(where, scalars.empty()
                         ? "holds no scalars"
                         : fmt::format("holds no scalar with a tag such as \"loss\", "
                                       "\"grad_norm\" or \"lr\", but {}",
                                       tags.empty() ? "evaluations or memory alone" : tags));
}

}  // namespace mfsdp
