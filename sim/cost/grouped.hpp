// The price of GEMMs of experts; each expert has its own matrix and rows.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "sim/cost/gemm.hpp"
#include "sim/cost/shape_table.hpp"
#include "sim/cost/tables.hpp"

namespace mfsdp {

/// Balanced experts.
struct GroupedProduct {
  GemmKind kind = GemmKind::forward;
  std::int64_t experts = 1;
  std::int64_t rows = 1;  ///< of each expert
  std::int64_t n = 1;     ///< output features
  std::int64_t k = 1;     ///< input features
  /// Bytes of an element of the main gradients to which weight gradients are added. 0: they are
  /// written instead, priced as fp32 if a table has both.
  std::int64_t gradient = 0;
};

[[nodiscard]] GroupedProduct product_of(const GroupedRow& row);
/// Nanoseconds of all experts together.
[[nodiscard]] double measured_ns(const GroupedRow& row);

/// Time of one kernel at the rate of one GEMM: all experts' rows, each expert's in full tiles; for
/// weight gradients, the outputs of all experts with sums as long as one expert's rows.
[[nodiscard]] double even_grouped_ns(const GemmCost& gemm, const GroupedProduct& product,
                                     bool fp32);

/// Measured times of experts' GEMMs relative to even_grouped_ns(), interpolated by rows of an
/// expert, n and k; for weight gradients also by the dtype of the main gradients.
class GroupedCost {
 public:
  /// `scale` converts the rows' rates to the GPU's, as in `gemm`. Without rows every ratio is 1.
  GroupedCost(std::span<const GroupedRow> rows, const GemmCost& gemm, double scale);

  [[nodiscard]] double ratio(const GroupedProduct& product) const;

 private:
  /// Forward, input gradients, weight gradients in fp32, weight gradients in bf16.
  static constexpr std::size_t kTables = 4;
  [[nodiscard]] static std::size_t table_of(GemmKind kind, std::int64_t gradient);

  std::array<std::optional<ShapeTable>, kTables> tables_{};
};

}  // namespace mfsdp
