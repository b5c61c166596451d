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

[[nodiscard]] GemmShape shape_of(const GemmRow& row);

/// What an operation of a product costs, whatever the shape: nanoseconds per FLOP
///   = base + depth / reduction + wave * idle
/// depth: each output element is read, scaled and written once, however short its reduction.
/// idle: the part of the last wave of tiles that has no tile, relative to the work; only a share of
/// it is lost, because tiles of a wave do not end together. See tile_waves in the source.
struct GemmLaw {
  double base = 0;
  double depth = 0;
  double wave = 0;

  [[nodiscard]] double ns_per_flop(const GemmShape& shape, double sms) const;
};

/// The law of least squared relative error over all rows, of all kinds together. A term that the
/// rows do not determine, or to which they would give a negative cost, is 0. Requires a row.
[[nodiscard]] GemmLaw fit_gemm_law(std::span<const GemmRow> rows, double sms);

/// Sustained time of a GEMM by its shape alone; memory limits are the caller's.
///   time = 2 * (output padded to 128 x 128 tiles) * reduction / (rate * waves)
/// rate: the law's, times what the table's rows of that kind differ from the law, interpolated over
/// (m, n, k), times the GPU's scale; never outside the range of those rows. The table's times
/// include the gap to the next kernel, so none is added. waves: the share of SMs that get work when
/// there are fewer 128 x 256 tiles than SMs. Products with a long reduction are split along it
/// (split-K), assumed in slices of 2048; every table row fills the SMs under this rule.
class GemmCost {
 public:
  /// Requires a row of every kind.
  GemmCost(std::span<const GemmRow> rows, const Gpu& gpu);

  /// Nanoseconds; dims must be positive. fp32 runs at the same share of the fp32 peak as bf16 does
  /// of its own.
  [[nodiscard]] double nanoseconds(const GemmShape& shape, bool fp32) const;

  /// The share of its speed that it loses to blocks that hold a few SMs, where its tiles then need
  /// another wave: a product of few waves loses much. 0 where they do not.
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
