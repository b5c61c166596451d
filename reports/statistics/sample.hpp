// Figures of a list of measured numbers.
#pragma once

#include <span>

namespace mfsdp {

/// The mean of a list that is not empty.
[[nodiscard]] double mean_of(std::span<const double> values);
/// The middle value, or the mean of the two in the middle, of a list that is not empty.
[[nodiscard]] double median_of(std::span<const double> values);
/// How much each value resembles the next one, from -1 to 1; 0 of fewer than 3 or of equal ones.
[[nodiscard]] double autocorrelation_of(std::span<const double> values);

/// The median's confidence interval by order statistics, which asks nothing of the distribution:
/// the true median lies below `low` with a chance of at most `significance`, and so above `high`.
/// Five values and 0.05 give the smallest and the largest (1/32 each).
struct MedianRange {
  double low = 0;
  double high = 0;
  bool known = false;  ///< false: too few values for that significance
};
[[nodiscard]] MedianRange median_range(std::span<const double> values, double significance);

}  // namespace mfsdp
