#include "verify/proof/ranks/class_sequences.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace mfsdp::every_rank {
namespace {

/// Collectives of one communicator serialise, so those before another one come first, and their
/// number does not fall from one collective of a communicator to the next.
void add_needs(const UnrolledPlan& unrolled, const Sequences& all, Sequence& sequence) {
  std::vector<std::uint32_t> ended(all.size(), 0);
  sequence.needs.reserve(sequence.meetings.size() * all.size());
  for (const PlannedMeeting& meeting : sequence.meetings) {
    for (std::size_t k = 0; k < all.size(); ++k) {
      const std::vector<PlannedMeeting>& others = all[k].meetings;
      while (ended[k] < others.size() &&
             unrolled.before(others[ended[k]].instance, meeting.instance))
        ++ended[k];
    }
    sequence.needs.insert(sequence.needs.end(), ended.begin(), ended.end());
  }
}

void add_channels(const UnrolledPlan& unrolled, Sequence& sequence) {
  const std::size_t count = sequence.meetings.size();
  sequence.launch_ends.assign(count, static_cast<std::uint32_t>(count));
  for (std::size_t m = count; m-- > 1;) {
    const Instance& instance = unrolled.instances[sequence.meetings[m].instance];
    const Instance& before = unrolled.instances[sequence.meetings[m - 1].instance];
    const bool same = instance.chain == before.chain && instance.position == before.position;
    sequence.launch_ends[m - 1] = same ? sequence.launch_ends[m] : static_cast<std::uint32_t>(m);
  }
  for (std::uint32_t m = 0; m < count; ++m) {
    const auto* collective =
        std::get_if<Collective>(&unrolled.instances[sequence.meetings[m].instance].op->body);
    const bool pairs = is_point_to_point(collective->kind) && collective->peer.has_value();
    sequence.point_to_point.push_back(pairs ? collective : nullptr);
    sequence.place.push_back(0);
    if (!pairs) continue;
    std::vector<std::uint32_t>& channel = sequence.channels[channel_of(*collective)];
    sequence.place.back() = static_cast<std::uint32_t>(channel.size());
    channel.push_back(m);
  }
}

}  // namespace

Channel channel_of(const Collective& collective) {
  return {.kind = collective.kind, .axis = collective.peer->axis, .step = collective.peer->step};
}

Sequences Sequencer::sequences_of(const UnrolledPlan& unrolled) {
  Sequences made(communicators_);
  for (const PlannedMeeting& meeting : meetings_of(unrolled)) {
    Sequence& sequence = made[meeting.communicator];
    sequence.meetings.push_back(meeting);
    const auto number = static_cast<std::uint32_t>(numbers_.size());
    sequence.signatures.push_back(
        numbers_.try_emplace(signature_of(unrolled, meeting), number).first->second);
  }
  for (Sequence& sequence : made) {
    add_needs(unrolled, made, sequence);
    add_channels(unrolled, sequence);
  }
  return made;
}

void add_launch_order(const UnrolledPlan& unrolled, Sequences& sequences) {
  const std::vector<PlannedMeeting> meetings = meetings_of(unrolled);
  for (std::size_t m = 1; m < meetings.size(); ++m) {
    const PlannedMeeting& before = meetings[m - 1];
    const PlannedMeeting& meeting = meetings[m];
    if (!launched_apart(unrolled, before, meeting)) continue;
    std::uint32_t& needed = sequences[meeting.communicator]
                                .needs[meeting.number * sequences.size() + before.communicator];
    needed = std::max(needed, before.number + 1);
  }
}

std::optional<std::size_t> Ranks::peer(std::size_t rank, Axis axis, std::int64_t step) const {
  const Int128 index = Int128{mesh.index(static_cast<std::int64_t>(rank), axis)} + step;
  if (index < 0 || index >= mesh.size(axis)) return std::nullopt;
  return static_cast<std::size_t>(static_cast<std::int64_t>(rank) + step * mesh.stride(axis));
}

std::pair<std::size_t, std::uint32_t> Ranks::other_end(std::size_t rank, std::size_t k,
                                                       std::size_t n) const {
  const Sequence& own = sequence(rank, k);
  const Channel channel = channel_of(*own.point_to_point[n]);
  const std::size_t other = *peer(rank, channel.axis, channel.step);
  return {other, sequence(other, k).channels.at(channel.other_end())[own.place[n]]};
}

Place Ranks::place(std::size_t rank, std::size_t communicator, std::size_t n) const {
  const UnrolledPlan& unrolled = *plans[class_of[rank]];
  Place place = place_of(unrolled, sequence(rank, communicator).meetings[n].instance);
  place.stream = fmt::format("rank {} {}", rank, place.stream);
  return place;
}

}  // namespace mfsdp::every_rank
