#include "core/plan/happens_before.hpp"

#include <algorithm>
#include <optional>

#include "core/plan/index.hpp"

namespace mfsdp {
namespace {

using Clock = std::vector<std::uint32_t>;

void merge(Clock& into, std::span<const std::uint32_t> from) {
  for (std::size_t s = 0; s < into.size(); ++s) into[s] = std::max(into[s], from[s]);
}

const CommunicatorId* communicator_of(const Op& op) {
  const auto* collective = std::get_if<Collective>(&op.body);
  return collective == nullptr ? nullptr : &collective->communicator;
}

}  // namespace

HappensBefore::HappensBefore(const Program& program, const Plan& plan, std::int64_t steps,
                             std::int64_t repeats)
    : streams_(program.streams.size()) {
  const IdIndex<StreamId> stream_index(program.streams);
  const IdIndex<EventId> event_index(program.events);
  const IdIndex<CommunicatorId> communicator_index(program.communicators);
  // The clocks of the latest record of each event and the latest op of each communicator.
  std::vector<std::optional<Clock>> recorded(program.events.size());
  std::vector<std::optional<Clock>> communicated(program.communicators.size());
  std::vector<Clock> now(streams_, Clock(streams_, 0));  // the clock of each stream
  std::vector<std::uint32_t> issued(streams_, 0);
  Clock host(streams_, 0);  // the clock of the host, from its waits

  const auto learn_event = [&](EventId event, Clock& learner) {
    if (const auto& latest = recorded[event_index[event]]) merge(learner, *latest);
  };

  const auto run = [&](const Op& op, std::int64_t step) {
    const auto s = static_cast<std::uint32_t>(stream_index[op.stream]);
    Clock& clock = now[s];
    merge(clock, host);
    if (const auto* wait = std::get_if<Wait>(&op.body)) learn_event(wait->event, clock);
    if (const auto* wait = std::get_if<HostWait>(&op.body)) learn_event(wait->event, host);
    const CommunicatorId* communicator = communicator_of(op);
    if (communicator != nullptr)
      if (const auto& latest = communicated[communicator_index[*communicator]])
        merge(clock, *latest);

    instances_.push_back({.op = &op, .stream = s, .position = issued[s], .step = step});
    clocks_.insert(clocks_.end(), clock.begin(), clock.end());
    clock[s] = ++issued[s];

    if (const auto* record = std::get_if<Record>(&op.body))
      recorded[event_index[record->event]] = clock;
    if (communicator != nullptr) communicated[communicator_index[*communicator]] = clock;
  };

  for (std::int64_t step = 0; step < steps; ++step)
    for (const Segment& segment : plan.segments)
      for (std::int64_t i = 0; i < std::min(segment.repeat, repeats); ++i)
        for (const Op& op : segment.ops) run(op, step);
}

}  // namespace mfsdp
