// A step as an engine runs it, and what it allocates once beside it.
#pragma once

#include <optional>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// What the host allocates once: before all steps or, in the first one, before an op.
struct OnceOnly {
  BufferId buffer;
  std::optional<OpId> before{};
  /// Of so many bytes that are freed again, and are no part of the steady state; else it is kept.
  std::optional<Bytes> passing{};
  bool is_free = false;  ///< it is, here
};

struct EnginePlan {
  Program program;
  std::vector<OnceOnly> once;  ///< in the order of the ops
  std::int64_t launches = 0;   ///< that the host makes in a step: kernels, copies, collectives
};

}  // namespace mfsdp
