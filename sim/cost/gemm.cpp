#include "sim/cost/gemm.hpp"

#include <algorithm>
#include <vector>

namespace mfsdp {
namespace {

constexpr std::int64_t kTileRows = 128;
constexpr std::int64_t kTileColumns = 256;
constexpr std::int64_t kColumnGrain = 128;  // narrower tiles exist for ragged widths
constexpr double kSlice = 2048;             // shortest part of a split reduction

ShapeTable table_of(std::span<const GemmRow> rows, GemmKind kind) {
  std::vector<ShapePoint> points;
  for (const GemmRow& row : rows) {
    if (row.kind == kind)
      points.push_back(ShapePoint{.shape = {row.m, row.n, row.k}, .rate = row.flops_per_ns});
  }
  return ShapeTable(std::move(points), TableShape{1, 1, 1}, false);
}

struct Product {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t reduction = 1;
};

Product product_of_kind(const GemmShape& shape) {
  switch (shape.kind) {
    case GemmKind::forward: return {.rows = shape.m, .columns = shape.n, .reduction = shape.k};
    case GemmKind::dgrad: return {.rows = shape.m, .columns = shape.k, .reduction = shape.n};
    case GemmKind::wgrad: return {.rows = shape.n, .columns = shape.k, .reduction = shape.m};
  }
  return {};
}

double tiles(std::int64_t length, std::int64_t tile) {
  return static_cast<double>(ceil_div(length, tile));
}

}  // namespace

GemmCost::GemmCost(std::span<const GemmRow> rows, const Gpu& gpu)
    : tables_{table_of(rows, GemmKind::forward), table_of(rows, GemmKind::dgrad),
              table_of(rows, GemmKind::wgrad)},
      scale_(gpu.gemm_scale),
      fp32_share_(gpu.fp32 / gpu.bf16),
      sms_(static_cast<double>(gpu.sms)) {}

double GemmCost::nanoseconds(const GemmShape& shape, bool fp32) const {
  const Product product = product_of_kind(shape);
  const auto reduction = static_cast<double>(product.reduction);
  const double padded = tiles(product.rows, kTileRows) * static_cast<double>(kTileRows) *
                        (tiles(product.columns, kColumnGrain) * static_cast<double>(kColumnGrain));
  const double slices = std::max(1.0, reduction / kSlice);
  const double jobs =
      tiles(product.rows, kTileRows) * tiles(product.columns, kTileColumns) * slices;
  const double waves = std::min(1.0, jobs / sms_);
  const TableShape at{static_cast<double>(shape.m), static_cast<double>(shape.n),
                      static_cast<double>(shape.k)};
  const double rate =
      tables_[static_cast<std::size_t>(shape.kind)].at(at) * scale_ * (fp32 ? fp32_share_ : 1.0);
  return 2 * padded * reduction / (rate * waves);
}

}  // namespace mfsdp
