#include "sim/simulator/track_table.hpp"

#include <fmt/format.h>

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
                                     std::size_t events) {
  const std::vector<Op>& ops = plan.segments[segment].ops;
  Counts counts;
  counts.repeat = plan.segments[segment].repeat;
  counts.last_record.resize(events);
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
      counts.last_record[event] = TrackPlace{track, grown(counts.in_segment, track)++};
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
  for (Counts& counts : counts_) {
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

}  // namespace mfsdp
