// The price of a GEMM.
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

[[nodiscard]] GemmShape shape_of(const GemmRow& row);

/// Cost of one FLOP of a GEMM, independent of the shape: nanoseconds per FLOP
///   = base + depth / reduction + wave * idle
/// depth: each output element is read, scaled and written once, for any length of the reduction.
/// idle: the unused part of the last wave of tiles, relative to the work. Only a share of it is
/// lost, because the tiles of a wave do not end at once. See tile_waves in the source.
struct GemmLaw {
  double base = 0;
  double depth = 0;
  double wave = 0;

  [[nodiscard]] double ns_per_flop(const GemmShape& shape, double sms) const;
};

/// The law with the least squared relative error over the rows of all kinds together. A term is 0
/// if the rows do not determine it or would give it a negative cost. Requires a row.
[[nodiscard]] GemmLaw fit_gemm_law(std::span<const GemmRow> rows, double sms);

/// Sustained time of a GEMM by its shape; the caller accounts for memory limits.
///   time = 2 * (output padded to 128 x 128 tiles) * reduction / rate + few
/// rate: the law's rate, times the measured deviation of the table's rows of that kind,
/// interpolated over (m, n, k), times the GPU's scale; never outside the range of those rows. The
/// table's times include the gap to the next kernel, so none is added. few: what a GEMM with fewer
/// 128 x 256 tiles than SMs takes longer, at most 2.4 us: libraries then use smaller tiles and
/// split sums.
class GemmCost {
 public:
  /// Requires a row of every kind.
  GemmCost(std::span<const GemmRow> rows, const Gpu& gpu);

  /// Nanoseconds; dims must be positive. fp32 reaches the same share of the fp32 peak as bf16 of
  /// the bf16 peak.
  [[nodiscard]] double nanoseconds(const GemmShape& shape, bool fp32) const;

  /// The share of its speed that the GEMM loses to blocks that hold a few SMs, if its tiles then
  /// need another wave. It is large for GEMMs of few waves; 0 if no further wave is needed.
  [[nodiscard]] double ragged_loss(const GemmShape& shape) const;

 private:
  struct RateRange {
    double least = 0;
    double most = 0;
  };

  GemmLaw law_;
  std::array<ShapeTable, 3> corrections_;  ///< by GemmKind: measured rate / the law's
  std::array<RateRange, 3> range_;         ///< of the measured rates
  double scale_;
  double fp32_share_;  ///< fp32 peak / bf16 peak
  double sms_;
};

}  // namespace mfsdp
