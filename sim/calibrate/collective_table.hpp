// Measured collectives inside a domain, completed to the grid that a collective table must be.
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

/// Curves by ranks, then kind.
[[nodiscard]] std::vector<TimeCurve> curves_of(std::span<const CollectiveSample> samples);

/// A row for every measured size and for the ranks of `ranks` and of the measurements. A cell is,
/// in this order: measured; linear between two measured sizes of its curve; `base`'s price times
/// what the nearest measured size, or else the nearest measured number of ranks, differs from base;
/// base's price where that collective was not measured at all. Fewer than two sizes are an error.
[[nodiscard]] Result<std::vector<CollectiveRow>> complete_table(std::span<const TimeCurve> curves,
                                                                std::span<const std::int64_t> ranks,
                                                                const CollectiveModel& base);

/// What each point of a curve, left out, is predicted as by the others: predicted / measured - 1.
[[nodiscard]] std::vector<double> leave_one_out_errors(const TimeCurve& curve,
                                                       const CollectiveModel& base);

}  // namespace mfsdp
