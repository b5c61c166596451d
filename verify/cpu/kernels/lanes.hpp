// Sums and maxima in an order that vector registers can follow. One running sum in index order is a
// chain of dependent additions, which no compiler may reorder. Here element i goes to lane
// i % kLanes, and the lanes are folded in halves. The order depends only on the count.
#pragma once

#include <array>
#include <cstdint>

namespace mfsdp {

inline constexpr std::int64_t kLanes = 16;

/// Folds value(0), ..., value(count - 1) with `fold`, whose neutral element is `start`.
template <class R, class Value, class Fold>
[[nodiscard]] R fold_lanes(std::int64_t count, R start, const Value& value, const Fold& fold) {
  std::array<R, kLanes> lanes;
  lanes.fill(start);
  R* const lane = lanes.data();
  std::int64_t first = 0;
  for (; first + kLanes <= count; first += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) lane[l] = fold(lane[l], value(first + l));
  for (std::int64_t l = 0; first + l < count; ++l) lane[l] = fold(lane[l], value(first + l));
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2)
    for (std::int64_t l = 0; l < half; ++l) lane[l] = fold(lane[l], lane[l + half]);
  return lane[0];
}

/// The sum of value(0), ..., value(count - 1).
template <class R, class Value>
[[nodiscard]] R sum_lanes(std::int64_t count, const Value& value) {
  return fold_lanes(count, R(0), value, [](R a, R b) { return a + b; });
}

/// The largest of value(0), ..., value(count - 1), count at least 1.
template <class R, class Value>
[[nodiscard]] R max_lanes(std::int64_t count, const Value& value) {
  return fold_lanes(count, R(value(0)), value, [](R a, R b) { return a < b ? b : a; });
}

}  // namespace mfsdp
