#include "sim/cost/grouped.hpp"

#include <vector>

#include "sim/cost/expert_rows.hpp"

namespace mfsdp {

GroupedProduct product_of(const GroupedRow& row) {
  return {.kind = row.of_expert.kind,
          .experts = static_cast<std::int64_t>(row.experts),
          .rows = static_cast<std::int64_t>(row.of_expert.m),
          .n = static_cast<std::int64_t>(row.of_expert.n),
          .k = static_cast<std::int64_t>(row.of_expert.k),
          .gradient = row.gradient};
}

double measured_ns(const GroupedRow& row) {
  const GemmRow& one = row.of_expert;
  return 2 * row.experts * one.m * one.n * one.k / one.flops_per_ns;
}

double even_grouped_ns(const GemmCost& gemm, const GroupedProduct& product, bool fp32) {
  if (product.kind == GemmKind::weight_gradient)
    return gemm.nanoseconds({.kind = product.kind,
                             .m = product.rows,
                             .n = checked_mul(product.experts, product.n),
                             .k = product.k},
                            fp32);
  return gemm.nanoseconds({.kind = product.kind,
                           .m = checked_mul(product.experts, round_up(product.rows, kExpertTile)),
                           .n = product.n,
                           .k = product.k},
                          fp32);
}

std::size_t GroupedCost::table_of(GemmKind kind, std::int64_t gradient) {
  const auto table = static_cast<std::size_t>(kind);
  const bool narrow = kind == GemmKind::weight_gradient && gradient == size_of(DType::bf16);
  return narrow ? kTables - 1 : table;
}

GroupedCost::GroupedCost(std::span<const GroupedRow> rows, const GemmCost& gemm, double scale) {
  std::array<std::vector<ShapePoint>, kTables> points;
  for (const GroupedRow& row : rows) {
    const GroupedProduct product = product_of(row);
    points[table_of(product.kind, product.gradient)].push_back(
        {.shape = {row.of_expert.m, row.of_expert.n, row.of_expert.k},
         .rate = measured_ns(row) / scale / even_grouped_ns(gemm, product, false)});
  }
  for (std::size_t i = 0; i < kTables; ++i)
    if (!points[i].empty()) tables_[i].emplace(std::move(points[i]), TableShape{1, 1, 1}, false);
}

double GroupedCost::ratio(const GroupedProduct& product) const {
  const std::optional<ShapeTable>* table = &tables_[table_of(product.kind, product.gradient)];
  // Weight gradients in bf16 that were not measured take as long as those in fp32, at most.
  if (!*table) table = &tables_[static_cast<std::size_t>(product.kind)];
  if (!*table) return 1;
  return (*table)->at({static_cast<double>(product.rows), static_cast<double>(product.n),
                       static_cast<double>(product.k)});
}

}  // namespace mfsdp
