#include "sim/cost/shape_table.hpp"

#include <algorithm>
#include <utility>

namespace mfsdp {

ShapeTable::ShapeTable(std::vector<ShapePoint> points, TableShape stress, bool sharp)
    : points_(std::move(points)), stress_(stress), sharp_(sharp) {}

double ShapeTable::at(const TableShape& shape) const {
  double weights = 0;
  double weighted = 0;
  for (const ShapePoint& point : points_) {
    double distance = 0;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      const double larger = std::max(shape[dim], point.shape[dim]);
      const double smaller = std::min(shape[dim], point.shape[dim]);
      const double excess = larger / smaller - 1;
      distance += stress_[dim] * (excess * excess);
    }
    if (distance == 0) return point.rate;
    const double weight = 1 / (sharp_ ? distance * distance : distance);
    weights += weight;
    weighted += weight * point.rate;
  }
  return weighted / weights;
}

}  // namespace mfsdp
