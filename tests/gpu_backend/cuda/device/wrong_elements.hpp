// Describes the wrong elements of a matrix in enough detail to find the bug after one run on a GPU.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/runtime/scalar.hpp"

namespace mfsdp::cuda {

/// The expected result, and the allowed error of each element.
struct Expected {
  std::vector<double> values;
  std::vector<double> bounds;
};

/// Rounding to T once, and `sums`, the magnitudes of all that was added up to it, in fp32.
template <class T>
[[nodiscard]] double rounding_bound(double value, double sums) {
  const double step = sizeof(T) == 4 ? 0x1p-23 : std::is_same_v<T, Bf16> ? 0x1p-8 : 0x1p-10;
  return step * std::abs(value) + 2e-5 * sums + (std::is_same_v<T, Fp16> ? 0x1p-24 : 0);
}

/// Succeeds if all are right. Otherwise the message has the number of wrong elements, their rows
/// and columns, and the first of them.
template <class T>
[[nodiscard]] testing::AssertionResult all_right(const std::vector<T>& got,
                                                 const Expected& expected, std::int64_t cols) {
  std::int64_t wrong = 0;
  std::int64_t first = 0;
  std::int64_t last_row = 0;
  std::int64_t least_col = cols;
  std::int64_t most_col = 0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double is = widen(got[i]);
    if (std::abs(is - expected.values[i]) <= expected.bounds[i]) continue;
    const auto at = static_cast<std::int64_t>(i);
    if (wrong++ == 0) first = at;
    last_row = at / cols;
    least_col = std::min(least_col, at % cols);
    most_col = std::max(most_col, at % cols);
  }
  if (wrong == 0) return testing::AssertionSuccess();
  const auto i = static_cast<std::size_t>(first);
  return testing::AssertionFailure() << fmt::format(
             "{} of {} elements are wrong, in rows {} to {} and columns {} to {} of {}; the first, "
             "[{}, {}], is {} and should be {} (within {})",
             wrong, expected.values.size(), first / cols, last_row, least_col, most_col, cols,
             first / cols, first % cols, static_cast<double>(widen(got[i])), expected.values[i],
             expected.bounds[i]);
}

}  // namespace mfsdp::cuda
