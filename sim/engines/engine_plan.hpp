// A step as an engine runs it, and what it allocates once beside it.
#pragma once

#include <optional>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// An allocation that is made once, in the first step: before that op, or before all steps.
struct KeptFrom {
  BufferId buffer;
  std::optional<OpId> before{};
  /// Scratch of a first call, of so many bytes: freed at once, and never seen again.
  std::optional<Bytes> brief{};
};

struct EnginePlan {
  Program program;
  std::vector<KeptFrom> kept;  ///< in the order of the ops
  std::int64_t launches = 0;   ///< that the host makes in a step: kernels, copies, collectives
};

}  // namespace mfsdp
