#include "sim/predict/live_peak.hpp"

#include <algorithm>

#include "core/plan/peak_memory.hpp"

namespace mfsdp {
namespace {

/// The timeline is in the order of starts; a stream's ops end in that order too.
std::string computing_at(const std::vector<OpTime>& timeline, Nanos time) {
  const auto found = std::ranges::find_if(timeline, [&](const OpTime& op) {
    return op.stream == to_string(StreamRole::compute) && op.end > time;
  });
  return found == timeline.end() ? std::string() : found->name;
}

}  // namespace

LivePeak live_peak(const std::vector<MemoryPoint>& points, const std::vector<OpTime>& timeline) {
  const auto total = [](const MemoryPoint& point) { return sum_of(point.categories); };
  const auto most = std::ranges::max_element(points, {}, total);
  if (most == points.end()) return {};
  return {.live = total(*most), .op = computing_at(timeline, most->at)};
}

std::optional<PeakPlace> place_of_op(const Program& program, const Plan& plan,
                                     std::string_view name) {
  for (const Segment& segment : plan.segments) {
    const auto found = std::ranges::find(segment.ops, name, &Op::name);
    if (found == segment.ops.end()) continue;
    PeakPlace place{.phase = found->phase, .unit = {}};
    const auto unit = std::ranges::find_if(
        program.units, [&](const PlanUnit& each) { return found->unit == each.id; });
    if (unit != program.units.end()) place.unit = unit->name;
    return place;
  }
  return std::nullopt;
}

}  // namespace mfsdp
