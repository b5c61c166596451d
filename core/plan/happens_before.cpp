#include "core/plan/happens_before.hpp"

#include <algorithm>
#include <optional>

#include "core/plan/index.hpp"
#include "core/plan/instances.hpp"

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

/// Whether its repetitions work on other microbatches without beginning any.
bool ends_microbatches(const Segment& segment) {
  return std::ranges::any_of(segment.calls,
                             [](const PassCall& call) { return call.lag_step != 0; });
}

}  // namespace

HappensBefore::HappensBefore(const Program& program, const Plan& plan, std::int64_t steps,
                             std::int64_t repeats)
    : streams_(program.streams.size()) {
  const IdIndex<StreamId> stream_index(program.streams);
  const IdIndex<EventId> event_index(program.events);
  const IdIndex<CommunicatorId> communicator_index(program.communicators);
  // The clocks of the latest record of each event and the latest op of each communicator.
  std::vector<std::vector<std::optional<Clock>>> recorded;  // by event and instance
  for (const Event& event : program.events)
    recorded.emplace_back(static_cast<std::size_t>(event.instances.value_or(1)));
  std::vector<std::optional<Clock>> communicated(program.communicators.size());
  std::vector<Clock> now(streams_, Clock(streams_, 0));  // the clock of each stream
  std::vector<std::uint32_t> issued(streams_, 0);
  Clock host(streams_, 0);  // the clock of the host, from its waits

  const auto record_of = [&](EventId event, std::int64_t lag,
                             std::int64_t begun) -> std::optional<Clock>& {
    auto& all = recorded[event_index[event]];
    return all[static_cast<std::size_t>(instance_of(begun, lag, std::ssize(all)))];
  };
  const auto learn_event = [&](const std::optional<Clock>& latest, Clock& learner) {
    if (latest) merge(learner, *latest);
  };

  const auto run = [&](const Op& op, std::int64_t step, std::int64_t begun, std::int64_t lag) {
    const auto s = static_cast<std::uint32_t>(stream_index[op.stream]);
    Clock& clock = now[s];
    merge(clock, host);
    if (const auto* wait = std::get_if<Wait>(&op.body))
      learn_event(record_of(wait->event, lag, begun), clock);
    if (const auto* wait = std::get_if<HostWait>(&op.body))
      learn_event(record_of(wait->event, lag, begun), host);
    const CommunicatorId* communicator = communicator_of(op);
    if (communicator != nullptr)
      if (const auto& latest = communicated[communicator_index[*communicator]])
        merge(clock, *latest);

    instances_.push_back(
        {.op = &op, .stream = s, .position = issued[s], .step = step, .begun = begun, .lag = lag});
    clocks_.insert(clocks_.end(), clock.begin(), clock.end());
    clock[s] = ++issued[s];

    if (const auto* record = std::get_if<Record>(&op.body))
      record_of(record->event, lag, begun) = clock;
    if (communicator != nullptr) communicated[communicator_index[*communicator]] = clock;
  };

  const std::int64_t rotation = rotation_of(program);
  for (std::int64_t step = 0; step < steps; ++step) {
    std::int64_t begun = 0;
    for (std::size_t number = 0; number < plan.segments.size(); ++number) {
      const Segment& segment = plan.segments[number];
      const std::vector<ListCall> calls = calls_of(plan, number);
      const bool is_whole = segment.repeat / rotation < repeats || ends_microbatches(segment);
      const std::int64_t times =
          is_whole ? segment.repeat : repeats * rotation + segment.repeat % rotation;
      for (std::int64_t i = 0; i < times; ++i) {
        begun += segment.microbatches;
        for (const ListCall& call : calls)
          for (const Op& op : op_list(plan, call.list))
            run(op, step, begun, op.lag + call.lag_in(i));
      }
    }
  }
}

}  // namespace mfsdp
