// The effect of a collective on its members' memory.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/error.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

/// One member's operands, in the communicator's rank order.
struct Member {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

/// Copies and sums on the calling thread while all members wait. Sums are in rank order; bf16 and
/// fp16 are added in fp32 and rounded once. Input and output of a member may overlap only as NCCL
/// allows, in place. Errors: other overlaps, and sums of other dtypes.
[[nodiscard]] Result<void> run_collective(const Collective& collective,
                                          std::span<const Member> members);

}  // namespace mfsdp
