// Interpolation between measured shapes.
#pragma once

#include <array>
#include <vector>

namespace mfsdp {

using TableShape = std::array<double, 3>;

struct ShapePoint {
  TableShape shape{};
  double rate = 0;
};

/// Inverse-distance weighting in ratios. The distance of two shapes is
///   d^2 = sum over dims of stress * (max(a, b) / min(a, b) - 1)^2
/// and the weight of a point is 1 / d^2 (or 1 / d^4 if `sharp`). Exact at the points, and never
/// outside the range of their rates. Uses only + - * /, so that every compiler gives the same bits.
class ShapeTable {
 public:
  /// Requires at least one point; shapes and rates are positive.
  ShapeTable(std::vector<ShapePoint> points, TableShape stress, bool sharp);

  /// The rate at a shape of positive dims.
  [[nodiscard]] double at(const TableShape& shape) const;

 private:
  std::vector<ShapePoint> points_;
  TableShape stress_;
  bool sharp_;
};

}  // namespace mfsdp
