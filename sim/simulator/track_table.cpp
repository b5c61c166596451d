#include "sim/simulator/track_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace mfsdp {
namespace {

std::int64_t& grown(std::vector<std::int64_t>& counts, std::uint32_t track) {
  if (track >= counts.size()) counts.resize(track + 1);
  return counts[track];
}

}  // namespace

std::string place_of(const Plan& plan, std::size_t segment, std::size_t op) {
  return fmt::format("{}.{}.ops[{}] '{}'", plan.name, plan.segments[segment].name, op,
                     plan.segments[segment].ops[op].name);
}

std::uint32_t TrackTable::intern(auto& tracks, const auto& key, std::uint32_t stream) {
  const auto [it, is_new] =
      tracks.try_emplace(key, static_cast<std::uint32_t>(track_stream_.size()));
  if (is_new) track_stream_.push_back(stream);
  return it->second;
}

Result<void> TrackTable::add_segment(const Plan& plan, std::size_t segment, const PlanIds& ids,
                                     const std::vector<Event>& events) {
  const std::vector<Op>& ops = plan.segments[segment].ops;
  Counts counts;
  counts.repeat = plan.segments[segment].repeat;
  counts.microbatches = plan.segments[segment].microbatches;
  counts.last_record.resize(events.size());
  std::map<std::uint32_t, std::size_t> open;  // groups: stream to position of its begin
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    const auto place = [&] { return place_of(plan, segment, i); };
    MFSDP_LET(stream, ids.streams.resolve(op.stream, place));
    const OpKind kind = op.kind();
    if (open.contains(stream) && kind != OpKind::collective && kind != OpKind::group_end &&
        kind != OpKind::host_wait)
      return fail(place(), "expected only collectives between group_begin and group_end");
    if (const auto* record = std::get_if<Record>(&op.body)) {
      MFSDP_LET(event, ids.events.resolve(record->event, place));
      const std::uint32_t track = intern(records_, std::pair(event, stream), stream);
      const TrackPlace there{track, grown(counts.in_segment, track)++};
      counts.last_record[event] = there;
      if (events[event].instances)
        counts.turning[event].push_back({.op = i, .place = there, .lag = op.lag});
    } else if (const auto* begin = std::get_if<GroupBegin>(&op.body)) {
      MFSDP_TRY(ids.communicators.resolve(begin->communicator, place));
      open.emplace(stream, i);
    } else if (const auto* end = std::get_if<GroupEnd>(&op.body)) {
      MFSDP_LET(communicator, ids.communicators.resolve(end->communicator, place));
      if (open.erase(stream) == 0) return fail(place(), "group_end without group_begin");
      ++grown(counts.in_segment, intern(launches_, communicator, streams_));
    } else if (const auto* collective = std::get_if<Collective>(&op.body)) {
      MFSDP_LET(communicator, ids.communicators.resolve(collective->communicator, place));
      if (!open.contains(stream))
        ++grown(counts.in_segment, intern(launches_, communicator, streams_));
    }
  }
  if (!open.empty())
    return fail(place_of(plan, segment, open.begin()->second),
                "group_begin without group_end in its segment");
  counts_.push_back(std::move(counts));
  return {};
}

void TrackTable::finish() {
  per_step_.assign(size(), 0);
  std::int64_t begun = 0;
  for (Counts& counts : counts_) {
    counts.begun = begun;
    begun = checked_add(begun, checked_mul(counts.microbatches, counts.repeat));
    counts.in_segment.resize(size());
    counts.before = per_step_;
    for (std::size_t track = 0; track < size(); ++track)
      per_step_[track] += counts.in_segment[track] * counts.repeat;
  }
}

Target TrackTable::same_instance(std::size_t segment, TrackPlace place) const {
  const Counts& counts = counts_[segment];
  return {.track = place.track,
          .per_step = per_step_[place.track],
          .per_instance = counts.in_segment[place.track],
          .base = counts.before[place.track] + place.n + 1};
}

std::optional<Target> TrackTable::instance_before(std::size_t segment, std::uint32_t event) const {
  const auto& place = counts_[segment].last_record[event];
  if (!place) return std::nullopt;
  Target target = same_instance(segment, *place);
  target.base -= target.per_instance;
  return target;
}

std::optional<TrackTable::Latest> TrackTable::latest_before(std::size_t segment,
                                                            std::uint32_t event) const {
  const std::size_t segments = counts_.size();
  for (std::size_t back = 1; back <= segments; ++back) {
    const std::size_t earlier = (segment + segments - back) % segments;
    const auto& place = counts_[earlier].last_record[event];
    if (!place) continue;
    Latest latest{.target = same_instance(earlier, *place), .step_before = earlier >= segment};
    latest.target.base += latest.target.per_instance * (counts_[earlier].repeat - 1);
    latest.target.per_instance = 0;  // the waiting segment has its own instances
    if (latest.step_before) latest.target.base -= latest.target.per_step;
    return latest;
  }
  return std::nullopt;
}

std::optional<Target> TrackTable::find_turn(std::size_t segment, const TurnWait& wait,
                                            std::int64_t turn, std::int64_t last,
                                            std::size_t end) const {
  const Counts& counts = counts_[segment];
  const auto records = counts.turning.find(wait.event);
  if (records == counts.turning.end()) return std::nullopt;
  // After as many instances of the segment as the event has, each of these was used.
  const std::int64_t first = std::max<std::int64_t>(0, last - wait.instances);
  for (std::int64_t k = last; k >= first; --k)
    for (auto record = records->second.rbegin(); record != records->second.rend(); ++record) {
      if (k == last && record->op >= end) continue;
      if (counts.turn(k, record->lag, wait.instances) != turn) continue;
      Target target = same_instance(segment, record->place);
      target.base += k * target.per_instance;
      target.per_instance = 0;
      return target;
    }
  return std::nullopt;
}

std::optional<Target> TrackTable::of_turn(const TurnWait& wait, std::int64_t k) const {
  constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  const Counts& own = counts_[wait.segment];
  const std::int64_t turn = own.turn(k, wait.lag, wait.instances);
  if (auto target = find_turn(wait.segment, wait, turn, k, wait.op)) {
    // As a function of k: later instances wait for records as far back.
    target->per_instance = own.in_segment[target->track];
    target->base -= k * target->per_instance;
    return target;
  }
  const std::size_t segments = counts_.size();
  for (std::size_t back = 1; back <= segments; ++back) {
    const std::size_t earlier = (wait.segment + segments - back) % segments;
    auto target = find_turn(earlier, wait, turn, counts_[earlier].repeat - 1, all);
    if (!target) continue;
    if (earlier >= wait.segment) target->base -= target->per_step;
    return target;
  }
  return std::nullopt;
}

}  // namespace mfsdp
