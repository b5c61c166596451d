#include "reports/statistics/sample.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

namespace mfsdp {

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median_of(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double autocorrelation_of(std::span<const double> values) {
  if (values.size() < 3) return 0;
  const double mean = mean_of(values);
  double products = 0;
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    squares += (values[i] - mean) * (values[i] - mean);
    if (i + 1 < values.size()) products += (values[i] - mean) * (values[i + 1] - mean);
  }
  return squares > 0 ? products / squares : 0;
}

MedianRange median_range(std::span<const double> values, double significance) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const std::size_t count = sorted.size();
  // P(at most k of n values lie below the median) = sum of n choose i, i to k, over 2^n. By
  // logarithms, as 2^-n is 0 in doubles from n = 1075 on.
  double log_chance = -static_cast<double>(count) * std::numbers::ln2;
  double sum = std::exp(log_chance);
  if (count == 0 || sum > significance) return {};
  std::size_t left_out = 0;  // values at each end
  for (;;) {
    log_chance += std::log(static_cast<double>(count - left_out)) -
                  std::log(static_cast<double>(left_out + 1));
    sum += std::exp(log_chance);
    if (sum > significance || 2 * (left_out + 1) >= count) break;
    ++left_out;
  }
  return {.low = sorted[left_out], .high = sorted[count - 1 - left_out], .known = true};
}

}  // namespace mfsdp
