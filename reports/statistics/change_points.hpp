// Where a long history of runs changed for good.
//
// Binary segmentation: of all places to cut the history in two, the one at which the rank test of
// Mann and Whitney sees the largest difference between both parts; it counts if its chance, times
// the number of places that were tried (Bonferroni), is at most `significance`, and if the medians
// differ by `least_change`. Each part is then searched in the same way. The same history gives the
// same answer always.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace mfsdp {

struct ChangeRule {
  double significance = 0.01;  ///< two-sided, after the correction
  double least_change = 0.01;  ///< of the median before
  std::size_t least_part = 5;  ///< runs on either side of a change
};

struct ChangePoint {
  std::size_t at = 0;  ///< index of the first value after it
  double before = 0;   ///< median of the values since the change before it
  double after = 0;    ///< median of the values up to the change after it
  double p = 0;        ///< corrected chance; 0 of exact_changes
};

/// By place. Empty where there are fewer than two parts' values.
[[nodiscard]] std::vector<ChangePoint> change_points(std::span<const double> history,
                                                     const ChangeRule& rule = {});

/// For values without noise, as simulated ones: each value that differs from the one before it.
[[nodiscard]] std::vector<ChangePoint> exact_changes(std::span<const double> history);

}  // namespace mfsdp
