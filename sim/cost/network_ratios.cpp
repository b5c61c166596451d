#include "sim/cost/network_ratios.hpp"

#include <algorithm>

namespace mfsdp {
namespace {

/// Ratio of the larger to the smaller value.
double apart(double a, double b) { return std::max(a, b) / std::min(a, b); }

}  // namespace

NetworkRatios::NetworkRatios(std::span<const CollectiveSample> samples,
                             const CollectiveModel& model, const Cluster& cluster) {
  for (const CollectiveSample& sample : mean_of_repeats(samples)) {
    if (sample.ranks <= cluster.domain || sample.ranks % cluster.domain != 0) continue;
    const CollectiveCost cost = model.cost(sample.kind, sample.bytes, {.ranks = sample.ranks});
    const double law = std::max(1.0, static_cast<double>(cost.duration.value));
    if (curves_.empty() || curves_.back().ranks != sample.ranks ||
        curves_.back().kind != sample.kind)
      curves_.push_back({.kind = sample.kind, .ranks = sample.ranks, .points = {}});
    curves_.back().points.push_back(
        {.bytes = static_cast<double>(sample.bytes.value), .ratio = sample.ns / law});
  }
}

bool NetworkRatios::measures(CollectiveKind kind) const {
  return std::ranges::any_of(curves_, [&](const Curve& curve) { return curve.kind == kind; });
}

double NetworkRatios::at(CollectiveKind kind, double bytes, const CommunicatorShape& shape) const {
  const Curve* nearest = nullptr;
  const auto ranks = static_cast<double>(shape.ranks);
  for (const Curve& curve : curves_) {
    if (curve.kind != kind || shape.spacing != 1) continue;
    if (nearest == nullptr || apart(static_cast<double>(curve.ranks), ranks) <
                                  apart(static_cast<double>(nearest->ranks), ranks))
      nearest = &curve;
  }
  if (nearest == nullptr) return 1;
  const std::vector<Point>& points = nearest->points;
  const auto upper =
      std::ranges::find_if(points, [&](const Point& point) { return point.bytes >= bytes; });
  if (upper == points.begin()) return upper->ratio;
  const Point& lower = *(upper - 1);
  if (upper == points.end()) return lower.ratio;
  return lower.ratio +
         (upper->ratio - lower.ratio) * ((bytes - lower.bytes) / (upper->bytes - lower.bytes));
}

}  // namespace mfsdp
