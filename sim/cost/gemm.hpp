// The price of a matrix product.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "sim/cost/shape_table.hpp"
#include "sim/cost/tables.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

struct GemmShape {
  GemmKind kind = GemmKind::forward;
  std::int64_t m = 1;  ///< tokens
  std::int64_t n = 1;  ///< output features
  std::int64_t k = 1;  ///< input features
};

/// Sustained time of a GEMM by its shape alone; memory limits are the caller's.
///   time = 2 * (output padded to 128 x 128 tiles) * reduction / (rate * waves)
/// rate: the table's at (m, n, k) for that kind, times the GPU's scale; the table's times include
/// the gap to the next kernel, so none is added. waves: the share of SMs that get work when there
/// are fewer 128 x 256 tiles than SMs. Products with a long reduction are split along it (split-K),
/// assumed in slices of 2048; every table row fills the SMs under this rule.
class GemmCost {
 public:
  /// Requires a row of every kind.
  GemmCost(std::span<const GemmRow> rows, const Gpu& gpu);

  /// Nanoseconds; dims must be positive. fp32 runs at the same share of the fp32 peak as bf16 does
  /// of its own.
  [[nodiscard]] double nanoseconds(const GemmShape& shape, bool fp32) const;

 private:
  std::array<ShapeTable, 3> tables_;  ///< by GemmKind
  double scale_;
  double fp32_share_;  ///< fp32 peak / bf16 peak
  double sms_;
};

}  // namespace mfsdp
