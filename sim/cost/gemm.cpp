#include "sim/cost/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "sim/hardware/power.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kTileRows = 128;
constexpr std::int64_t kTileColumns = 256;
constexpr std::int64_t kColumnGrain = 128;  // narrower tiles exist for ragged widths

// Beside blocks on 8 of an H100's 132 SMs, a GEMM of w complete waves takes 1.75 / w longer, until
// that is less than the loss of all GEMMs: it needs another wave, whose tiles also begin late
// (h100_products_beside_blocks.csv; a test states the error). The table has GEMMs of two waves and
// more. Those of one wave use smaller tiles and lose as much as those of two: 1.6 to 1.75 times in
// steps of 1024 tokens (docs/lab/2026-11-28-own-3.md).
constexpr double kHeldSms = 8;
constexpr double kRaggedWaves = 1.75;
constexpr double kFewestWaves = 2;

// A GEMM with fewer tiles than SMs uses smaller tiles or splits its sums. It takes this longer than
// at the full rate, times the share of SMs without a tile (h200_small_gemms.csv; a test states the
// error).
constexpr double kFewTilesNs = 2400;

struct Product {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t reduction = 1;
};

Product product_of_kind(const GemmShape& shape) {
  switch (shape.kind) {
    case GemmKind::forward: return {.rows = shape.m, .columns = shape.n, .reduction = shape.k};
    case GemmKind::input_gradient:
      return {.rows = shape.m, .columns = shape.k, .reduction = shape.n};
    case GemmKind::weight_gradient:
      return {.rows = shape.n, .columns = shape.k, .reduction = shape.m};
  }
  return {};
}

double tiles(std::int64_t length, std::int64_t tile) {
  return static_cast<double>(ceil_div(length, tile));
}

/// Waves of output tiles on `sms` SMs.
double tile_waves(const Product& product, double sms) {
  return tiles(product.rows, kTileRows) * tiles(product.columns, kTileColumns) / sms;
}

/// Nanoseconds beyond those at the full rate if some SMs have no tile, at most as if these were
/// idle.
double few_tiles_ns(double full_ns, double waves) {
  return waves < 1 ? std::min(kFewTilesNs * (1 - waves), full_ns * (1 / waves - 1)) : 0;
}

/// Idle fraction of the last wave. Below one wave, few_tiles_ns() counts idle SMs.
double idle_share(double waves) {
  if (waves < 1) return 0;
  const double whole = std::ceil(waves);
  return whole / waves - 1;
}

/// The row's rate without few_tiles_ns().
double full_rate(const GemmRow& row, double sms) {
  const double flops = 2 * row.m * row.n * row.k;
  const double ns = flops / row.flops_per_ns;
  const double waves = std::min(1.0, tile_waves(product_of_kind(shape_of(row)), sms));
  return flops / std::max(ns - kFewTilesNs * (1 - waves), ns * waves);
}

constexpr std::size_t kTerms = 3;
using Terms = std::array<double, kTerms>;

Terms terms_of(const GemmShape& shape, double sms) {
  const Product product = product_of_kind(shape);
  return {1, 1 / static_cast<double>(product.reduction), idle_share(tile_waves(product, sms))};
}

/// Non-negative weights of the named terms that minimise sum (weight . term * rate - 1)^2; the
/// other weights are 0. Nothing if the rows do not determine them or one would be negative.
std::optional<Terms> least_squares(std::span<const GemmRow> rows, double sms,
                                   std::span<const std::size_t> used) {
  constexpr double kSingular = 1e-12;  // a pivot relative to its diagonal
  std::array<std::array<double, kTerms + 1>, kTerms> matrix{};
  for (const GemmRow& row : rows) {
    const Terms terms = terms_of(shape_of(row), sms);
    for (std::size_t i = 0; i < used.size(); ++i) {
      const double left = terms[used[i]] * row.flops_per_ns;
      for (std::size_t j = 0; j < used.size(); ++j)
        matrix[i][j] += left * (terms[used[j]] * row.flops_per_ns);
      matrix[i][used.size()] += left;
    }
  }
  // Gauss-Jordan elimination; a matrix of sums of squares needs no pivoting.
  for (std::size_t i = 0; i < used.size(); ++i) {
    double square = 0;
    for (const GemmRow& row : rows) {
      const double term = terms_of(shape_of(row), sms)[used[i]] * row.flops_per_ns;
      square += term * term;
    }
    if (!(matrix[i][i] > kSingular * square)) return std::nullopt;
    for (std::size_t r = 0; r < used.size(); ++r) {
      if (r == i) continue;
      const double factor = matrix[r][i] / matrix[i][i];
      for (std::size_t c = i; c <= used.size(); ++c) matrix[r][c] -= factor * matrix[i][c];
    }
  }
  Terms weights{};
  for (std::size_t i = 0; i < used.size(); ++i) {
    weights[used[i]] = matrix[i][used.size()] / matrix[i][i];
    if (!(weights[used[i]] >= 0)) return std::nullopt;
  }
  return weights;
}

ShapeTable corrections(std::span<const GemmRow> rows, GemmKind kind, const GemmLaw& law,
                       double sms) {
  std::vector<ShapePoint> points;
  for (const GemmRow& row : rows) {
    if (row.kind == kind)
      points.push_back({.shape = {row.m, row.n, row.k},
                        .rate = full_rate(row, sms) * law.ns_per_flop(shape_of(row), sms)});
  }
  return ShapeTable(std::move(points), TableShape{1, 1, 1}, false);
}

}  // namespace

GemmShape shape_of(const GemmRow& row) {
  return {.kind = row.kind,
          .m = static_cast<std::int64_t>(row.m),
          .n = static_cast<std::int64_t>(row.n),
          .k = static_cast<std::int64_t>(row.k)};
}

double GemmLaw::ns_per_flop(const GemmShape& shape, double sms) const {
  const Terms terms = terms_of(shape, sms);
  return base + depth * terms[1] + wave * terms[2];
}

GemmLaw fit_gemm_law(std::span<const GemmRow> rows, double sms) {
  constexpr std::array<std::size_t, 3> kAll{0, 1, 2};
  constexpr std::array<std::size_t, 2> kDepth{0, 1};
  constexpr std::array<std::size_t, 2> kWave{0, 2};
  for (const std::span<const std::size_t> used :
       {std::span<const std::size_t>(kAll), std::span<const std::size_t>(kDepth),
        std::span<const std::size_t>(kWave)}) {
    if (rows.size() <= used.size()) continue;
    if (const auto weights = least_squares(rows, sms, used))
      return {.base = (*weights)[0], .depth = (*weights)[1], .wave = (*weights)[2]};
  }
  return {.base = (*least_squares(rows, sms, std::array<std::size_t, 1>{0}))[0]};
}

GemmCost::GemmCost(std::span<const GemmRow> rows, const Gpu& gpu)
    : law_(fit_gemm_law(rows, static_cast<double>(gpu.table_sms))),
      corrections_{
          corrections(rows, GemmKind::forward, law_, static_cast<double>(gpu.table_sms)),
          corrections(rows, GemmKind::input_gradient, law_, static_cast<double>(gpu.table_sms)),
          corrections(rows, GemmKind::weight_gradient, law_, static_cast<double>(gpu.table_sms))},
      range_{},
      scale_(gpu.gemm_scale * power_rate(gpu)),
      fp32_share_(gpu.fp32 / gpu.bf16),
      sms_(static_cast<double>(gpu.sms)) {
  for (const GemmRow& row : rows) {
    const double rate = full_rate(row, static_cast<double>(gpu.table_sms));
    RateRange& range = range_[static_cast<std::size_t>(row.kind)];
    range.least = range.least == 0 ? rate : std::min(range.least, rate);
    range.most = std::max(range.most, rate);
  }
}

double GemmCost::nanoseconds(const GemmShape& shape, bool fp32) const {
  const Product product = product_of_kind(shape);
  const auto reduction = static_cast<double>(product.reduction);
  const double padded = tiles(product.rows, kTileRows) * static_cast<double>(kTileRows) *
                        (tiles(product.columns, kColumnGrain) * static_cast<double>(kColumnGrain));
  const TableShape at{static_cast<double>(shape.m), static_cast<double>(shape.n),
                      static_cast<double>(shape.k)};
  const auto kind = static_cast<std::size_t>(shape.kind);
  const double rate = std::clamp(corrections_[kind].at(at) / law_.ns_per_flop(shape, sms_),
                                 range_[kind].least, range_[kind].most);
  const double full = 2 * padded * reduction / (rate * scale_ * (fp32 ? fp32_share_ : 1.0));
  return full + few_tiles_ns(full, tile_waves(product, sms_));
}

double GemmCost::ragged_loss(const GemmShape& shape) const {
  const Product product = product_of_kind(shape);
  const double whole = std::ceil(tile_waves(product, sms_));
  if (sms_ <= kHeldSms || std::ceil(tile_waves(product, sms_ - kHeldSms)) <= whole) return 0;
  return kRaggedWaves / (std::max(whole, kFewestWaves) + kRaggedWaves);
}

}  // namespace mfsdp
