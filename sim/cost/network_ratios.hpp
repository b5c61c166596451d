// Measured times of collectives between nodes relative to the model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/cost/collective.hpp"
#include "sim/cost/tables.hpp"

namespace mfsdp {

/// Measured / modelled time by size, one curve for each collective and number of nodes. With these
/// ratios, a calibrated cluster reproduces its measurements. Without measurements every ratio is 1.
class NetworkRatios {
 public:
  /// Samples are ignored if their ranks do not fill `cluster`'s domains, or are all in one domain.
  /// Several samples of one size count as their mean.
  NetworkRatios(std::span<const CollectiveSample> samples, const CollectiveModel& model,
                const Cluster& cluster);

  /// Ratio of the curve with the nearest number of ranks: linear in bytes between its sizes,
  /// constant beyond them. 1 for ranks that are not adjacent (dp_outer), which no test measures.
  [[nodiscard]] double at(CollectiveKind kind, double bytes, const CommunicatorShape& shape) const;

  [[nodiscard]] bool empty() const { return curves_.empty(); }
  /// Whether that collective was measured between domains, on any number of ranks.
  [[nodiscard]] bool measures(CollectiveKind kind) const;

 private:
  struct Point {
    double bytes = 0;
    double ratio = 1;
  };
  struct Curve {
    CollectiveKind kind = CollectiveKind::all_gather;
    std::int64_t ranks = 0;
    std::vector<Point> points;  ///< by bytes
  };
  std::vector<Curve> curves_;  ///< by ranks
};

}  // namespace mfsdp
