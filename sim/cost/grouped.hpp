// The price of products of experts, each a matrix of its own with rows of its own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "sim/cost/gemm.hpp"
#include "sim/cost/shape_table.hpp"
#include "sim/cost/tables.hpp"

namespace mfsdp {

/// Of experts in balance.
struct GroupedProduct {
  GemmKind kind = GemmKind::forward;
  std::int64_t experts = 1;
  std::int64_t rows = 1;  ///< of each expert
  std::int64_t n = 1;     ///< output features
  std::int64_t k = 1;     ///< input features
  /// Bytes of an element of main gradients, to which a product of weights' gradients adds; 0: they
  /// are written, as fp32 where a table tells both.
  std::int64_t gradient = 0;
};

[[nodiscard]] GroupedProduct product_of(const GroupedRow& row);
/// Nanoseconds, of all experts together.
[[nodiscard]] double measured_ns(const GroupedRow& row);

/// By one kernel at the rate of one product: of all experts' rows, each expert's in whole tiles,
/// or, of weight gradients, of all their outputs with sums as long as an expert's rows.
[[nodiscard]] double even_grouped_ns(const GemmCost& gemm, const GroupedProduct& product,
                                     bool fp32);

/// What measured products of experts take over even_grouped_ns(), interpolated by rows of an
/// expert, n and k; of weight gradients by the main gradients' type, too.
class GroupedCost {
 public:
  /// `scale`: of the rows' rates, to the GPU's, as in `gemm`. Without rows nothing differs.
  GroupedCost(std::span<const GroupedRow> rows, const GemmCost& gemm, double scale);

  [[nodiscard]] double ratio(const GroupedProduct& product) const;

 private:
  /// Forward, input gradients, weights' gradients in fp32, and in bf16.
  static constexpr std::size_t kTables = 4;
  [[nodiscard]] static std::size_t table_of(GemmKind kind, std::int64_t gradient);

  std::array<std::optional<ShapeTable>, kTables> tables_{};
};

}  // namespace mfsdp
