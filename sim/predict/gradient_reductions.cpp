#include "sim/predict/gradient_reductions.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/engine_options.hpp"

namespace mfsdp {
namespace {

/// Ranks that share weights or sequences also sum rows and gradients of rows.
bool sums_rows(const Program& program, const Op& op, const Collective& collective) {
  const bool passes = op.phase != Phase::reduce && op.phase != Phase::optimizer;
  const auto among =
      std::ranges::find(program.communicators, collective.communicator, &Communicator::id);
  if (!passes || among == program.communicators.end()) return false;
  return among->purpose == "tensor" || among->purpose == "context";
}

bool reduces_gradients(const Program& program, const Op& op) {
  const auto* collective = std::get_if<Collective>(&op.body);
  return collective != nullptr && !sums_rows(program, op, *collective) &&
         (op.phase == Phase::reduce || collective->reduction == Reduction::sum);
}

bool reduces_gradients(const Program& program, const Segment& segment) {
  return std::ranges::any_of(segment.ops,
                             [&](const Op& op) { return reduces_gradients(program, op); });
}

}  // namespace

std::optional<GradientReductions> gradient_reductions(const Program& program, const Plan& plan) {
  if (program.config.microbatches < 2) return std::nullopt;
  std::int64_t left = program.config.microbatches;
  bool reduces = false;
  for (const Segment& segment : plan.segments) {
    const std::int64_t begun = segment.repeat * segment.microbatches;
    left -= begun;
    if (!reduces_gradients(program, segment)) continue;
    reduces = true;
    const bool is_before_last = begun > 0 && (left > 0 || begun > 1);
    if (is_before_last) return GradientReductions::every_microbatch;
  }
  return reduces ? std::optional(GradientReductions::once_a_step) : std::nullopt;
}

std::string reduction_statement(EngineKind engine, GradientReductions when,
                                std::int64_t parameters) {
  if (when == GradientReductions::once_a_step)
    return fmt::format(
        "assumed: {} reduces gradients once a step, after the last microbatch; every rank keeps a "
        "full copy of them until then",
        to_string(engine));
  if (const std::string_view deferral = traits_of(engine).deferral; !deferral.empty())
    return fmt::format("assumed: {} reduces gradients in every microbatch; {}", to_string(engine),
                       deferral);
  constexpr double kGibibyte = 1 << 30;
  const double bf16 = 2 * static_cast<double>(parameters) / kGibibyte;
  return fmt::format(
      "assumed: {} reduces gradients in every microbatch; Accelerate, Hugging Face's Trainer and "
      "others reduce once a step, with a full copy of the gradients on every rank ({:.1f} GiB in "
      "bf16, {:.1f} in fp32): {}",
      to_string(engine), bf16, 2 * bf16,
      has_option(engine, "--accumulate-unsharded") ? "--accumulate-unsharded"
                                                   : "not predicted yet");
}

}  // namespace mfsdp
