// Whether two operands meet in a byte on any rank.
//
// An operand is rows of `run` bytes, `count` of them, `stride` bytes apart, and the whole moves by
// its rank strides. For two of them, row k of a and row l of b on rank (i, j, ...) meet where
//
//   -run_b  <  begin_b - begin_a  +  (l - k) stride  +  i step_0  +  j step_1  + ...  <  run_a
//
// with the differences of their steps along each axis of the mesh. That is exact for contiguous
// operands and for rows of one stride, which is what kernels touch; operands with more dims that
// are not contiguous, and pairs of rows of different strides, count as all bytes that they span.
#pragma once

#include "core/plan/config.hpp"
#include "verify/proof/order/accesses.hpp"

namespace mfsdp {

/// Rows of equal length at equal distances; contiguous bytes are one row.
struct Rows {
  std::int64_t begin = 0;  ///< bytes from the buffer's start, on the rank with index 0 on each axis
  std::int64_t run = 0;
  std::int64_t count = 1;
  std::int64_t stride = 0;  ///< bytes; 0 where count is 1
  PerAxis<Int128> steps{};  ///< bytes that the whole moves for each index on an axis
};

/// The rows of an access whose operand was checked. With more dims, one row of all that it spans.
[[nodiscard]] Rows rows_of(const ByteAccess& access);

/// Both in one buffer.
[[nodiscard]] bool overlap(const Rows& a, const Rows& b, const Mesh& mesh);

/// Whether an operand has no gaps: its elements are all bytes of its span.
[[nodiscard]] bool is_contiguous(const Operand& operand);

}  // namespace mfsdp
