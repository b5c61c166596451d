// Rows of the experts of one rank, for routings that are not balanced.
#pragma once

#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "core/base/quantity.hpp"
#include "core/base/vocabulary.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

/// Rows of a tile of a grouped GEMM: each expert's rows are rounded up to full tiles.
inline constexpr std::int64_t kExpertTile = 128;

/// Rows of one rank in one block and microbatch.
struct ExpertRows {
  std::vector<std::int64_t> rows;  ///< one entry for each expert of the rank

  [[nodiscard]] std::int64_t total() const {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  }
  /// Sum of rows, rounded up to full tiles.
  [[nodiscard]] std::int64_t tiled() const {
    std::int64_t sum = 0;
    for (const std::int64_t each : rows) sum = checked_add(sum, round_up(each, kExpertTile));
    return sum;
  }

  friend bool operator==(const ExpertRows&, const ExpertRows&) = default;
};

/// Rows of the slowest rank, by block; blocks without an entry are balanced.
using RoutedRows = std::map<UnitId, ExpertRows>;

/// The rows of that op's block; null if they are balanced.
[[nodiscard]] inline const ExpertRows* rows_of(const RoutedRows& routed, const Op& op) {
  if (!op.unit) return nullptr;
  const auto found = routed.find(*op.unit);
  return found == routed.end() ? nullptr : &found->second;
}

}  // namespace mfsdp
