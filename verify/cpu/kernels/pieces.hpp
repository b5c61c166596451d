// What --exact-sums tells a kernel, from its attributes.
#pragma once

#include "core/plan/exact_sums.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/operand_reader.hpp"

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
template <class R>
[[nodiscard]] std::optional<GridSums<R>> grid_sums(const Kernel& kernel) {
  const std::int64_t limit = kernel.attribute(exact_attribute::sum_limit);
  if (limit == 0) return std::nullopt;
  return GridSums<R>(kernel.attribute(exact_attribute::grid_exponent), limit);
}

/// The outcome of a kernel that writes the gradient `role`.
template <class R>
[[nodiscard]] Result<void> exact_result(const GridSums<R>& sums, const Kernel& kernel,
                                        std::string_view role) {
  return sums.result(fmt::format("kernel {}: operand {}", to_string(kernel.kind), role));
}

}  // namespace mfsdp::kernels
