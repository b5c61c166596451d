// The bytes that the ops of a plan touch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/plan.hpp"
#include "verify/proof/order/program_index.hpp"

namespace mfsdp {

/// Bytes of a buffer that an op touches. `begin` and `end` span all of them on every rank; where an
/// operand has strides or rank strides some between may be untouched (overlap.hpp is exact).
struct ByteAccess {
  std::uint32_t buffer = 0;  ///< position in Program::buffers
  bool writes = false;
  bool exact = true;  ///< touches all of [begin, end) on every rank
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const Operand* operand = nullptr;  ///< null for an acquire and a release
};

/// Accesses of a plan's ops, in the order of ops and of their operands. Empty
/// ranges are left out.
struct AccessTable {
  std::vector<ByteAccess> accesses;
  std::vector<std::uint32_t> first{0};  ///< by op, and one past the last

  [[nodiscard]] std::span<const ByteAccess> of(std::size_t op) const {
    return std::span(accesses).subspan(first[op], first[op + 1] - first[op]);
  }
};

/// One for each plan of a program without structure_faults().
[[nodiscard]] std::vector<AccessTable> access_tables(const Program& program,
                                                     const ProgramIndex& index);

}  // namespace mfsdp
