// Loss sums, 1/T and the loss scale.
#include <fmt/format.h>

#include <algorithm>

#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/ledger/scaling_state.hpp"

namespace mfsdp::scaling {
namespace {

/// The loss scale that a kernel reads, if it reads one.
std::optional<LossScale> scale_of(State& s, const Kernel& kernel) {
  const Operand* operand = operand_of(kernel, "loss_scale");
  if (operand == nullptr) return std::nullopt;
  const Buffer& buffer = s.unrolled.program->buffers[s.unrolled.index->buffers[operand->buffer]];
  if (!buffer.holds || buffer.holds->port != Port::loss_scale)
    report(s, "MF313",
           fmt::format("reads 'loss_scale' from buffer '{}', which does not hold the loss scale",
                       buffer.name));
  return LossScale{.buffer = operand->buffer, .changes = s.changes[operand->buffer]};
}

/// 1/T is divided by the loss scale that the gradients of the step contain.
void check_removed(State& s, const Kernel& kernel, const Sums& summed) {
  const auto removed = scale_of(s, kernel);
  for (const auto& [offset, instance] : summed.made_by) {
    const auto found = s.scaled_by.find(instance);
    const auto applied =
        found == s.scaled_by.end() ? std::nullopt : std::optional<LossScale>(found->second);
    if (applied == removed) continue;
    return report(
        s, "MF313",
        !removed   ? "does not divide 1/T by the loss scale that this step's gradients contain"
        : !applied ? "divides 1/T by a loss scale, but this step's gradients contain none"
                   : "divides 1/T by another loss scale than this step's gradients contain");
  }
}

/// Each rank has added its losses at one offset, and the input is those sums of all ranks.
bool is_one_sum(const Sums& input, const State& s, const Kernel& kernel) {
  const auto& [place, first] = *input.made_by.begin();
  const Operand* sums = operand_of(s.kernel_of(first), "loss_sums");
  if (sums == nullptr) return false;  // partial norms
  const std::int64_t one = sums->elements();
  const Operand& all = *operand_of(kernel, "input");
  return input.made_by.rbegin()->first == place && (!input.begin || input.count == one) &&
         all.offset == input.begin.value_or(place) &&
         all.elements() == checked_mul(one, input.ranks) && is_gathered(input, all);
}

/// Ranks of tp have the same tokens, so the loss is not gathered over them: the number of ranks does
/// not show over which it was.
bool is_over_other_tokens(const Sums& input, const State& s) {
  if (!input.over || s.config.mesh.size(Axis::tp) == 1) return true;
  const Program& program = *s.unrolled.program;
  const auto& over = program.communicators[s.unrolled.index->communicators[*input.over]];
  return std::ranges::find(over.axes, Axis::tp) == over.axes.end();
}

}  // namespace

void sum_loss(State& s, const Kernel& kernel) {
  const Operand* output = operand_of(kernel, "loss_sums");
  if (output == nullptr) return;
  const bool begins = kernel.attribute("beta") == 0;
  if (begins) write_over(s, *output);
  Sums& sums = s.sums[output->buffer];
  if (begins) sums = {.made_by = {}, .garbage = false};
  sums.made_by.emplace(output->offset, s.now);
  if (kernel.kind != KernelKind::cross_entropy) return;
  const auto scale = scale_of(s, kernel);
  if (scale.has_value() != s.config.scales_loss())
    report(s, "MF313",
           scale ? "multiplies its gradient by a loss scale, but none is configured"
                 : "does not multiply its gradient by the configured loss scale");
  if (scale) s.scaled_by[s.now] = *scale;
}

void check_router_losses(State& s, const Kernel& kernel) {
  const bool adds =
      kernel.find_attribute("aux_loss") != nullptr || kernel.find_attribute("z_loss") != nullptr;
  const auto scale = scale_of(s, kernel);
  if (scale.has_value() != (adds && s.config.scales_loss()))
    return report(s, "MF313",
                  !scale ? "does not multiply its router losses by the configured loss scale"
                  : adds ? "multiplies its router losses by a loss scale, but none is configured"
                         : "reads a loss scale, but has no router losses");
  if (!scale) return;
  const bool is_the_loss = std::ranges::any_of(s.scaled_by, [&](const auto& of) {
    return s.step_of(of.first) == s.step() && of.second == *scale;
  });
  if (!is_the_loss)
    report(s, "MF313", "multiplies its router losses by another loss scale than this step's loss");
}

void finish_loss(State& s, const Kernel& kernel) {
  const Sums& input = s.input_of(kernel);
  std::int64_t rows = 0;
  bool stale = input.garbage;
  for (const auto& [offset, instance] : input.made_by) {
    stale = stale || s.step_of(instance) != s.step();
    rows = checked_add(rows, s.kernel_of(instance).attribute("rows"));
  }
  const std::int64_t tokens = checked_mul(s.microbatches, s.config.tokens_per_microbatch());
  if (!input.made_by.empty() && !is_one_sum(input, s, kernel))
    report(s, "MF307", "computes 1/T from an input that is not exactly one loss sum of each rank");
  if (stale)
    report(s, "MF307", "computes 1/T from loss sums that are not all of this step");
  else if (s.microbatches > 0 && rows != tokens)
    report(s, "MF307",
           fmt::format("computes 1/T from {} tokens; the {} microbatches of this step have {}",
                       rows, s.microbatches, tokens));
  else if (input.ranks != loss_ranks(s.config.mesh))
    report(s, "MF307",
           fmt::format("computes 1/T from the tokens of {} ranks; expected {} ranks", input.ranks,
                       loss_ranks(s.config.mesh)));
  else if (!is_over_other_tokens(input, s))
    report(s, "MF307", "computes 1/T from the tokens of ranks of tp, which are the same on all");
  check_removed(s, kernel, input);
  finish(s, operand_of(kernel, "loss"), Scale::loss);
}

void change_loss_scale(State& s, const Kernel& kernel) {
  const auto scale = scale_of(s, kernel);
  if (scale.has_value() != s.config.scales_loss())
    return report(s, "MF313",
                  scale ? "updates a loss scale, but none is configured"
                        : "does not update the configured loss scale");
  if (!scale) return;
  const auto [last, first_time] = s.changed_in.try_emplace(scale->buffer, s.step());
  if (!first_time && std::exchange(last->second, s.step()) == s.step())
    report(s, "MF313", "updates the loss scale a second time in its step");
  ++s.changes[scale->buffer];
}

}  // namespace mfsdp::scaling
