// The rank test of Mann and Whitney (1947): whether values of one list tend to be larger than those
// of another, whatever their distribution. One outlier moves it no more than any other large value.
#pragma once

#include <span>

namespace mfsdp {

struct RankTest {
  double u = 0;  ///< pairs in which the second list's value is larger; equal ones count a half
  double p_larger = 1;   ///< chance of such a u or a larger one if the lists do not differ
  double p_smaller = 1;  ///< of such a u or a smaller one
  bool exact = false;    ///< from the distribution of u; else by its normal approximation
  /// Cliff's delta, 2u / pairs - 1: 1 where every value of the second list is larger, -1 where
  /// every one is smaller. At least 0.474 in size counts as a large effect.
  double effect = 0;
};

/// Exact where one list has at most 20 and the other at most 200: of all ways to deal these very
/// values out to the two lists, so equal values are no difficulty. Otherwise normal, with the
/// correction for ties and for continuity. No list is empty.
[[nodiscard]] RankTest mann_whitney(std::span<const double> first, std::span<const double> second);

/// By how much the second list is larger: the median of all differences (Hodges and Lehmann, 1963),
/// with the range that the same test leaves (Moses): below `low`, and above `high`, the shift lies
/// with a chance of at most `significance` each.
struct Shift {
  double estimate = 0;
  double low = 0;
  double high = 0;
  bool bounded = false;  ///< false: too few values; low and high are the extreme differences
};
[[nodiscard]] Shift shift_between(std::span<const double> first, std::span<const double> second,
                                  double significance);

}  // namespace mfsdp
