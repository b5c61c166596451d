// Measured collectives inside a domain, completed to the grid of a collective table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "sim/cost/collective.hpp"
#include "sim/cost/tables.hpp"

namespace mfsdp {

/// The measured times of one collective on one number of ranks.
struct TimeCurve {
  struct Point {
    double bytes = 0;
    double ns = 0;  ///< mean over the samples of that size
  };
  CollectiveKind kind = CollectiveKind::all_gather;
  std::int64_t ranks = 0;
  std::vector<Point> points;  ///< by bytes
};

/// Curves sorted by ranks, then kind.
[[nodiscard]] std::vector<TimeCurve> curves_of(std::span<const CollectiveSample> samples);

/// A row for every measured size and for the ranks of `ranks` and of the measurements. A cell is
/// the first available of: the measured time; linear between two measured sizes of its curve;
/// `base`'s price times the ratio to base of the nearest measured size, or else of the nearest
/// measured number of ranks; `base`'s price if that collective was not measured at all. Fewer than
/// two sizes are an error.
[[nodiscard]] Result<std::vector<CollectiveRow>> complete_table(std::span<const TimeCurve> curves,
                                                                std::span<const std::int64_t> ranks,
                                                                const CollectiveModel& base);

/// Predicted / measured - 1 of each point of a curve, predicted from the other points.
[[nodiscard]] std::vector<double> leave_one_out_errors(const TimeCurve& curve,
                                                       const CollectiveModel& base);

}  // namespace mfsdp
