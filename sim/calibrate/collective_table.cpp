#include "sim/calibrate/collective_table.hpp"

#include <algorithm>
#include <set>

namespace mfsdp {
namespace {

double price(const CollectiveModel& model, CollectiveKind kind, double bytes, std::int64_t ranks) {
  const CollectiveCost cost =
      model.cost(kind, Bytes(static_cast<std::int64_t>(bytes)), {.ranks = ranks});
  return std::max(1.0, static_cast<double>(cost.duration.value));
}

/// Time of a curve at any size: interpolated, and beyond its ends in proportion to `base`.
double at(const TimeCurve& curve, double bytes, const CollectiveModel& base) {
  const auto& points = curve.points;
  const auto upper =
      std::ranges::find_if(points, [&](const auto& point) { return point.bytes >= bytes; });
  if (upper != points.end() && upper->bytes == bytes) return upper->ns;
  if (upper == points.begin() || upper == points.end()) {
    const auto& end = upper == points.begin() ? points.front() : points.back();
    return end.ns * price(base, curve.kind, bytes, curve.ranks) /
           price(base, curve.kind, end.bytes, curve.ranks);
  }
  const auto& lower = *(upper - 1);
  const double part = (bytes - lower.bytes) / (upper->bytes - lower.bytes);
  return lower.ns + (upper->ns - lower.ns) * part;
}

double ranks_apart(std::int64_t a, std::int64_t b) {
  return static_cast<double>(std::max(a, b)) / static_cast<double>(std::min(a, b));
}

double cell(std::span<const TimeCurve> curves, CollectiveKind kind, double bytes,
            std::int64_t ranks, const CollectiveModel& base) {
  const TimeCurve* nearest = nullptr;
  for (const TimeCurve& curve : curves) {
    if (curve.kind != kind) continue;
    if (nearest == nullptr || ranks_apart(curve.ranks, ranks) < ranks_apart(nearest->ranks, ranks))
      nearest = &curve;
  }
  const double taken_over = price(base, kind, bytes, ranks);
  if (nearest == nullptr) return taken_over;
  const double measured = at(*nearest, bytes, base);
  if (nearest->ranks == ranks) return measured;
  return taken_over * measured / price(base, kind, bytes, nearest->ranks);
}

}  // namespace

std::vector<TimeCurve> curves_of(std::span<const CollectiveSample> samples) {
  std::vector<TimeCurve> curves;
  for (const CollectiveSample& sample : mean_of_repeats(samples)) {
    if (curves.empty() || curves.back().ranks != sample.ranks || curves.back().kind != sample.kind)
      curves.push_back({.kind = sample.kind, .ranks = sample.ranks, .points = {}});
    curves.back().points.push_back(
        {.bytes = static_cast<double>(sample.bytes.value), .ns = sample.ns});
  }
  return curves;
}

Result<std::vector<CollectiveRow>> complete_table(std::span<const TimeCurve> curves,
                                                  std::span<const std::int64_t> ranks,
                                                  const CollectiveModel& base) {
  std::set<double> sizes;
  std::set<std::int64_t> all_ranks(ranks.begin(), ranks.end());
  for (const TimeCurve& curve : curves) {
    all_ranks.insert(curve.ranks);
    for (const auto& point : curve.points) sizes.insert(point.bytes);
  }
  if (sizes.size() < 2)
    return fail("--calibrate",
                "the collectives have one size; expected two or more, to separate "
                "latency from bandwidth");
  std::vector<CollectiveRow> rows;
  for (const std::int64_t count : all_ranks) {
    for (const double bytes : sizes) {
      const auto time = [&](CollectiveKind kind) { return cell(curves, kind, bytes, count, base); };
      rows.push_back({.ranks = static_cast<double>(count),
                      .bytes = bytes,
                      .all_gather_ns = time(CollectiveKind::all_gather),
                      .reduce_scatter_ns = time(CollectiveKind::reduce_scatter),
                      .all_reduce_ns = time(CollectiveKind::all_reduce)});
    }
  }
  return rows;
}

std::vector<double> leave_one_out_errors(const TimeCurve& curve, const CollectiveModel& base) {
  std::vector<double> errors;
  if (curve.points.size() < 2) return errors;
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    TimeCurve others = curve;
    others.points.erase(others.points.begin() + static_cast<std::ptrdiff_t>(i));
    errors.push_back(at(others, curve.points[i].bytes, base) / curve.points[i].ns - 1);
  }
  return errors;
}

}  // namespace mfsdp
