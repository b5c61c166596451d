// Requirements of --exact-sums (core/plan/exact_sums.hpp) for kernels that sum over tokens.
#pragma once

#include <cstdint>
#include <optional>

namespace mfsdp::kernels {

/// Sums of pieces are rounded to steps of 2^exponent; none may be larger than `limit` steps.
struct GradientGrid {
  std::int64_t exponent = 0;
  std::int64_t limit = 0;
};

/// How the rows of a sum are cut. Without --exact-sums all of them are one piece, and no grid.
struct Pieces {
  std::int64_t rows = 1;  ///< of one piece, at least 1; divides the rows of the sum
  std::optional<GradientGrid> grid = {};
};

}  // namespace mfsdp::kernels
