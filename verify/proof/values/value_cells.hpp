// The bytes whose values are followed, divided into cells: the largest parts that no access cuts.
//
// A buffer that ops touch as rows of one stride is cut in columns, any other in intervals:
//
//   qkv [tokens, columns]     |   query   |  key  |  value  |      rope touches the first two,
//                             |  cell 0   |   1   |    2    |      a GEMM all three
//   normed [tokens, hidden]   |  rows of chunk 0  |  chunk 1  |  ...
//
// Operands whose place depends on the rank, and rows of another stride than their buffer's, count
// as all the bytes that they span on any rank: an op touches some unknown bytes of these cells. Followed are buffers of the device that layouts.hpp does not follow: neither
// weights nor gradients nor state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "verify/proof/ledger/layouts.hpp"
#include "verify/proof/order/accesses.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// An op's use of cells of one buffer.
struct CellUse {
  std::uint32_t buffer = 0;  ///< position in Program::buffers
  std::uint32_t first = 0;   ///< cells
  std::uint32_t last = 0;    ///< and one past
  bool reads = false;
  bool writes = false;
  bool scratch = false;              ///< leaves unknown bytes
  bool exact = true;                 ///< all bytes of these cells; else some of them
  const Operand* operand = nullptr;  ///< null for a scalar
};

struct ValueCells {
  std::vector<char> followed{};             ///< by buffer
  std::vector<std::int64_t> pitch{};        ///< by buffer: bytes of its rows; 0: cut in intervals
  std::vector<std::uint32_t> first_cell{};  ///< by buffer, and one past the last
  std::vector<std::int64_t> begin{};        ///< by cell: its first byte, from the buffer's start
  std::vector<CellUse> uses{};
  std::vector<std::uint32_t> first_use{0};  ///< by op of the plan, and one past the last

  [[nodiscard]] std::span<const CellUse> of(std::size_t op) const {
    return std::span(uses).subspan(first_use[op], first_use[op + 1] - first_use[op]);
  }
};

[[nodiscard]] ValueCells value_cells(const UnrolledPlan& unrolled, const AccessTable& table,
                                     const Layouts& layouts);

}  // namespace mfsdp
