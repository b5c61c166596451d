// Bytes that a microbatch certainly has live at once in each pool, from its tables.
#include <algorithm>
#include <functional>

#include "core/schedule/microbatch.hpp"

namespace mfsdp::schedule {
namespace {

/// Alignment of buffers in the planner's pools.
const std::int64_t kAlignment = Pool{}.alignment;

}  // namespace

/// Acquires and releases are in the compute stream, around the kernels.
MicrobatchSchedule::PartsLive MicrobatchSchedule::live_of_parts() {
  make_tensors();
  std::int64_t live = 0;
  PartsLive parts;
  const auto size = [&](BufferId id) { return round_up(e_.at(id).size.value, kAlignment); };
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (i == backward_begin_) parts.saved = Bytes(live);
    const Step& step = steps_[i];
    for (const BufferId id : step.released) live -= size(id);
    for (const BufferId id : step.acquires) live = checked_add(live, size(id));
    Bytes& most = i < backward_begin_ ? parts.forward : parts.backward;
    most = std::max(most, Bytes(live));
    for (const BufferId id : step.releases) live -= size(id);
  }
  return parts;
}

Bytes MicrobatchSchedule::most_live_activations() {
  const PartsLive parts = live_of_parts();
  return std::max(parts.forward, parts.backward);
}

/// All units of a use are gathered before it; units that only the use before needed are released.
Bytes MicrobatchSchedule::most_gathered_weights() const {
  const auto is_gathered = [&](std::size_t unit) { return state_.gathers(unit); };
  std::int64_t most = 0;
  for (const auto& units : residents(false)) {
    std::int64_t live = 0;
    for (const std::size_t unit : units)
      if (is_gathered(unit))
        live = checked_add(live, round_up(state_.units[unit].weight_bytes, kAlignment) +
                                     round_up(state_.units[unit].cast_bytes, kAlignment));
    most = std::max(most, live);
  }
  return Bytes(most);
}

Bytes MicrobatchSchedule::most_full_gradients() const {
  const bool cast = config_.reduce_dtype != config_.grad_dtype;
  std::vector<std::size_t> order;  // units with gradients, by the begin of these
  for (std::size_t unit = 0; unit < gradients_.size(); ++unit)
    if (gradients_[unit].first) order.push_back(unit);
  if (order.empty()) return {};
  const auto crosses = [&](const GroupState& group) {
    return !group.route.shards_gradient() && cast &&
           std::ranges::any_of(group.route.reduces,
                               [](const Reduce& reduce) { return reduce.on->wire; });
  };
  const bool through_wire =
      std::ranges::none_of(order, [&](std::size_t unit) { return state_.shards_gradient(unit); });
  std::ranges::sort(order, {}, [&](std::size_t unit) { return gradients_[unit].first; });
  const auto size = [&](std::size_t unit) {
    std::int64_t bytes = 0;
    for (const GroupState* group : state_.trainable_of(unit)) {
      // Full gradients that are reduced at the step's end are short-lived and not counted here.
      if (!group->route.shards_gradient() && !(through_wire && crosses(*group))) continue;
      const std::int64_t own =
          round_up(bytes_of(group->group->elements, config_.reduce_dtype).value, kAlignment);
      bytes = through_wire ? std::max(bytes, own) : checked_add(bytes, own);
    }
    return bytes;
  };
  // Compute waits for a slot only if all are in use, and then for the oldest. Full gradients are
  // reduced one at a time.
  const auto slots = static_cast<std::size_t>(through_wire ? 1 : config_.grad_slots);
  std::int64_t most = 0;
  std::vector<std::size_t> ended = order;  // the last one to end comes first
  std::ranges::sort(ended, std::greater{}, [&](std::size_t unit) { return gradients_[unit].last; });
  for (const std::size_t begins : order) {
    std::int64_t live = size(begins);
    std::size_t taken = 1;
    for (const std::size_t other : order) {
      if (through_wire || !is_filled_during(other, begins)) continue;
      live = checked_add(live, size(other));
      if (!is_tied(other)) ++taken;
    }
    for (const std::size_t other : ended) {
      if (taken >= slots || gradients_[other].last >= *gradients_[begins].first) continue;
      live = checked_add(live, size(other));
      ++taken;
    }
    most = std::max(most, live);
  }
  return Bytes(most);
}

}  // namespace mfsdp::schedule
