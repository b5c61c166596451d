#include "verify/proof/ranks/meetings.hpp"

#include <fmt/format.h>

namespace mfsdp {

std::vector<PlannedMeeting> meetings_of(const UnrolledPlan& unrolled) {
  std::vector<PlannedMeeting> meetings;
  std::vector<std::uint32_t> counts(unrolled.program->communicators.size(), 0);
  for (std::uint32_t i = 0; i < unrolled.instances.size(); ++i)
    if (const OpFacts& facts = unrolled.facts(i); facts.kind == OpKind::collective)
      meetings.push_back(
          {.instance = i, .communicator = facts.subject, .number = counts[facts.subject]++});
  return meetings;
}

Signature signature_of(const UnrolledPlan& unrolled, const PlannedMeeting& meeting) {
  const Instance& instance = unrolled.instances[meeting.instance];
  const auto& collective = std::get<Collective>(instance.op->body);
  const Segment& segment = unrolled.plan->segments[unrolled.runs[instance.run].segment];
  return {.kind = collective.kind,
          .count = collective.count,
          .dtype = collective.dtype,
          .reduction = collective.reduction,
          .repeat = segment.repeat};
}

std::string to_text(const Signature& signature) {
  return fmt::format("{} of {} {}, reduction {}, {} times a step", to_string(signature.kind),
                     signature.count, to_string(signature.dtype), to_string(signature.reduction),
                     signature.repeat);
}

Finding deadlock_finding(bool launches_in_order, std::vector<Place> cycle) {
  std::string message = launches_in_order ? "if each device runs collectives in launch order, they "
                                            "wait for each other in a cycle: "
                                          : "collectives wait for each other in a cycle: ";
  for (const Place& place : cycle) message += to_text(place) + " -> ";
  message += to_text(cycle.front());
  return {.rule = launches_in_order ? "MF203" : "MF202",
          .message = std::move(message),
          .places = cycle,
          .interleaving = cycle};
}

bool launched_apart(const UnrolledPlan& unrolled, const PlannedMeeting& a,
                    const PlannedMeeting& b) {
  return unrolled.ordered(a.instance, b.instance) ||
         unrolled.instances[a.instance].chain != unrolled.instances[b.instance].chain;
}

}  // namespace mfsdp
