// How many rows the experts of one rank have, where that is asked: prices are of balance else.
#pragma once

#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "core/base/quantity.hpp"
#include "core/base/vocabulary.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

/// Rows of a tile of a grouped product: each expert's are rounded up to whole ones.
inline constexpr std::int64_t kExpertTile = 128;

/// Of one rank, in one block and micro-batch.
struct ExpertRows {
  std::vector<std::int64_t> rows;  ///< of each of its experts

  [[nodiscard]] std::int64_t total() const {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  }
  /// In whole tiles.
  [[nodiscard]] std::int64_t tiled() const {
    std::int64_t sum = 0;
    for (const std::int64_t each : rows) sum = checked_add(sum, round_up(each, kExpertTile));
    return sum;
  }

  friend bool operator==(const ExpertRows&, const ExpertRows&) = default;
};

/// By block, of the rank that is slowest in it; blocks that are missing have balance.
using RoutedRows = std::map<UnitId, ExpertRows>;

/// The rows of that op's block; null where they are in balance.
[[nodiscard]] inline const ExpertRows* rows_of(const RoutedRows& routed, const Op& op) {
  if (!op.unit) return nullptr;
  const auto found = routed.find(*op.unit);
  return found == routed.end() ? nullptr : &found->second;
}

}  // namespace mfsdp
