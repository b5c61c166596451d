#include "reports/statistics/change_points.hpp"

#include <algorithm>
#include <cmath>

#include "reports/statistics/mann_whitney.hpp"
#include "reports/statistics/sample.hpp"

namespace mfsdp {
namespace {

/// The rank of each value, 1 the smallest; equal ones share their mean rank.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    for (std::size_t j = i; j < end; ++j) ranks[order[j]] = static_cast<double>(i + end + 1) / 2;
    i = end;
  }
  return ranks;
}

/// Where |u - pairs / 2| is largest in terms of its deviation without ties. Ties scale all places
/// alike, so they do not move it.
std::size_t best_cut(std::span<const double> values, std::size_t least_part) {
  const std::vector<double> ranks = ranks_of(values);
  const auto all = static_cast<double>(values.size());
  std::size_t best = least_part;
  double most = -1;
  double sum = 0;
  for (std::size_t cut = 1; cut + least_part <= values.size(); ++cut) {
    sum += ranks[cut - 1];
    if (cut < least_part) continue;
    const auto n = static_cast<double>(cut);
    const double u = sum - n * (n + 1) / 2;
    const double pairs = n * (all - n);
    const double size = std::fabs(u - pairs / 2) / std::sqrt(pairs);
    if (size > most) {
      most = size;
      best = cut;
    }
  }
  return best;
}

void find_cuts(std::span<const double> history, std::size_t begin, std::size_t end,
               const ChangeRule& rule, std::vector<ChangePoint>& found) {
  if (end - begin < 2 * rule.least_part) return;
  const std::span<const double> part = history.subspan(begin, end - begin);
  const std::size_t cut = best_cut(part, rule.least_part);
  const RankTest test = mann_whitney(part.first(cut), part.subspan(cut));
  const auto places = static_cast<double>(part.size() - 2 * rule.least_part + 1);
  const double p = std::min(1.0, 2 * std::min(test.p_larger, test.p_smaller) * places);
  const double before = median_of(part.first(cut));
  const double change = std::fabs(median_of(part.subspan(cut)) - before);
  if (p > rule.significance || change < rule.least_change * std::fabs(before)) return;
  find_cuts(history, begin, begin + cut, rule, found);
  found.push_back({.at = begin + cut, .p = p});
  find_cuts(history, begin + cut, end, rule, found);
}

void fill_medians(std::span<const double> history, std::vector<ChangePoint>& points) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t begin = i == 0 ? 0 : points[i - 1].at;
    const std::size_t end = i + 1 == points.size() ? history.size() : points[i + 1].at;
    points[i].before = median_of(history.subspan(begin, points[i].at - begin));
    points[i].after = median_of(history.subspan(points[i].at, end - points[i].at));
  }
}

}  // namespace

std::vector<ChangePoint> change_points(std::span<const double> history, const ChangeRule& rule) {
  std::vector<ChangePoint> points;
  find_cuts(history, 0, history.size(), rule, points);
  fill_medians(history, points);
  return points;
}

std::vector<ChangePoint> exact_changes(std::span<const double> history) {
  std::vector<ChangePoint> points;
  for (std::size_t i = 1; i < history.size(); ++i)
    if (history[i] != history[i - 1])
      points.push_back({.at = i, .before = history[i - 1], .after = history[i]});
  return points;
}

}  // namespace mfsdp
