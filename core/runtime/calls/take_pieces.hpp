// What --exact-sums tells a kernel, from its attributes.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/exact_sums.hpp"
#include "core/runtime/calls/operand_reader.hpp"
#include "core/runtime/calls/pieces.hpp"

namespace mfsdp::kernels {

/// Rows of one piece; all rows without --exact-sums.
[[nodiscard]] inline std::int64_t take_piece_rows(OperandReader& in, std::string_view role,
                                                  const Kernel& kernel, std::int64_t rows) {
  const std::int64_t piece = kernel.attribute(exact_attribute::piece_rows, rows);
  if (rows == 0 || (piece > 0 && rows % piece == 0)) return std::max<std::int64_t>(piece, 1);
  in.complain(role,
              fmt::format("expected a multiple of the {} rows of a piece, got {}", piece, rows));
  return 1;
}

/// Nothing without --exact-sums.
[[nodiscard]] inline std::optional<GradientGrid> take_grid(const Kernel& kernel) {
  const std::int64_t limit = kernel.attribute(exact_attribute::sum_limit);
  if (limit == 0) return std::nullopt;
  return GradientGrid{.exponent = kernel.attribute(exact_attribute::grid_exponent), .limit = limit};
}

/// Both; `role` is the operand whose rows are summed.
[[nodiscard]] inline Pieces take_pieces(OperandReader& in, std::string_view role,
                                        const Kernel& kernel, std::int64_t rows) {
  return {.rows = take_piece_rows(in, role, kernel, rows), .grid = take_grid(kernel)};
}

}  // namespace mfsdp::kernels
