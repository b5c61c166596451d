// The chains that touch each buffer of a plan, and the cells into which accesses divide it.
#pragma once

#include <cstdint>
#include <vector>

#include "verify/proof/order/accesses.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// An access, with what the pass over the instances needs of it.
struct CellAccess {
  std::uint32_t buffer = 0;
  std::uint32_t begin = 0;  ///< cells, over all buffers
  std::uint32_t end = 0;
  bool writes = false;
};

struct BufferUses {
  /// By buffer: touched on several chains, or inside a group, whose ops are not ordered. Others
  /// are ordered by their stream.
  std::vector<char> shared;
  std::vector<std::uint32_t> first_cell{};  ///< by buffer, and one past the last
  /// By op: accesses to shared or transient buffers, acquires and releases left out.
  std::vector<CellAccess> accesses{};
  std::vector<std::uint32_t> first_access{0};  ///< by op, and one past the last
  /// By op: the host's access to a copy's memory, where that is shared.
  std::vector<std::pair<std::uint32_t, CellAccess>> host{};
};

[[nodiscard]] BufferUses buffer_uses(const UnrolledPlan& unrolled, const AccessTable& table);

}  // namespace mfsdp
