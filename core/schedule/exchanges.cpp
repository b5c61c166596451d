// Collectives of recipes that kernels hide: token exchanges between ranks while the shared expert
// computes.
//
//   compute   ... dispatch | shared gate_up         | arrange | ...
//   exchange               | counts, rows, weights  |
//                          ready                    exchanged
//
// Consecutive collectives are moved from the compute stream to their own if a kernel comes between
// them and the first op that touches their output. Otherwise they stay, which needs no event.
#include <algorithm>
#include <set>
#include <string>

#include "core/schedule/microbatch.hpp"

namespace mfsdp::schedule {

/// The first step that conflicts with the collectives [begin, end): it reads or writes their
/// output, or writes their input. None if no step of the use does.
std::optional<std::size_t> MicrobatchSchedule::join_of(std::size_t begin, std::size_t end,
                                                       std::size_t use_end) const {
  std::set<std::string> read;
  std::set<std::string> written;
  for (std::size_t i = begin; i < end; ++i)
    for (const RecipeOperand& operand : steps_[i].op->operands)
      (operand.access == Access::read ? read : written).insert(key_of(steps_[i], operand));
  for (std::size_t i = end; i < use_end; ++i) {
    const bool touches = std::ranges::any_of(steps_[i].op->operands, [&](const auto& operand) {
      const std::string key = key_of(steps_[i], operand);
      return written.contains(key) || (operand.access != Access::read && read.contains(key));
    });
    if (touches) return i;
  }
  return std::nullopt;
}

void MicrobatchSchedule::find_exchanges() {
  for (const Use& use : uses_)
    for (std::size_t i = use.begin; i < use.end; ++i) {
      if (steps_[i].op->kernel() != nullptr) continue;
      const std::size_t begin = i;
      while (i < use.end && steps_[i].op->kernel() == nullptr) ++i;
      const std::optional<std::size_t> join = join_of(begin, i, use.end);
      if (!join || *join == i) continue;
      e_.make_stream(StreamRole::exchange);
      for (std::size_t s = begin; s < i; ++s) {
        steps_[s].beside = true;
        steps_[s].run = begin;
        steps_[s].joined_at = *join;
      }
      steps_[*join].ends = begin;
    }
}

std::string MicrobatchSchedule::exchange_event(const char* when, std::size_t run) const {
  const Step& first = steps_[run];
  return event(when + state_.units[first.unit].name + "." + first.op->name);
}

void MicrobatchSchedule::begin_step(std::size_t number) {
  const Step& step = steps_[number];
  const Phase phase = step.op->phase;
  if (step.ends) e_.wait(StreamRole::compute, phase, exchange_event("exchanged.", *step.ends));
  for (const BufferId id : step.released) e_.release(StreamRole::compute, phase, id);
  for (const Crossing& tensor : received_)
    if (tensor.step == number)
      e_.wait(StreamRole::compute, phase, e_.at(tensor.buffer).name + ".received");
  for (const BufferId id : step.acquires) acquire(phase, id);
  if (!step.beside || step.run != number) return;
  e_.record(StreamRole::compute, phase, exchange_event("ready.", number));
  e_.wait(StreamRole::exchange, phase, exchange_event("ready.", number));
}

void MicrobatchSchedule::end_step(std::size_t number) {
  const Step& step = steps_[number];
  const Phase phase = step.op->phase;
  const bool is_last =
      step.beside && !(steps_[number + 1].beside && steps_[number + 1].run == step.run);
  if (is_last) e_.record(StreamRole::exchange, phase, exchange_event("exchanged.", step.run));
  for (const Crossing& tensor : sent_)
    if (tensor.step == number)
      e_.record(StreamRole::compute, phase, e_.at(tensor.buffer).name + ".made");
  for (const BufferId id : step.releases) release(phase, id);
}

}  // namespace mfsdp::schedule
