// A step as an engine runs it, and what it allocates once beside it.
#pragma once

#include <optional>
#include <vector>

#include "core/plan/plan.hpp"
#include "sim/engines/host_work.hpp"

namespace mfsdp {

/// An allocation that is made once, in the first step: before that op, or before all steps.
struct KeptFrom {
  BufferId buffer;
  std::optional<OpId> before{};
  /// One that only a first call makes, of so many bytes, and that is no part of the steps.
  std::optional<Bytes> brief{};
  bool freed = false;  ///< the end of such a one
  /// It is not there before the first step, which frees none where later ones do.
  bool by_renewal = false;
  /// It is there before the first step, which makes none where later ones do.
  bool before_steps = false;
  /// No allocation: segments without a block in use are given back (torch.cuda.empty_cache).
  bool empties_cache = false;
};

/// What is kept and made anew in every step, beside the old one, which is freed then: the step
/// acquires and releases `next`, and which of both is there alternates.
struct Renewal {
  BufferId kept;
  BufferId next;
};

struct EnginePlan {
  Program program;
  std::vector<KeptFrom> kept;  ///< in the order of the ops
  std::vector<Renewal> renewals{};
  std::vector<HostLaunches> host{};  ///< by the id of an op: to issue it
  std::int64_t padding = 0;          ///< elements of a whole copy of the weights
};

}  // namespace mfsdp
