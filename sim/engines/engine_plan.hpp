// A step of an engine, and its allocations outside the steps.
#pragma once

#include <optional>
#include <vector>

#include "core/plan/plan.hpp"
#include "sim/engines/host_work.hpp"

namespace mfsdp {

/// An allocation made once, in the first step: before that op, or before all steps.
struct KeptFrom {
  BufferId buffer;
  std::optional<OpId> before{};
  bool in_second_step = false;  ///< instead of the first
  /// Bytes of an allocation that only the first call of a function makes; not part of the steps.
  std::optional<Bytes> brief{};
  bool freed = false;  ///< the free of a brief allocation
  /// Missing before the first step, so the first step does not free it; later steps do.
  bool by_renewal = false;
  /// Live before the first step, so the first step does not allocate it; later steps do.
  bool before_steps = false;
  /// Not an allocation: segments without a block in use are released (torch.cuda.empty_cache).
  bool empties_cache = false;
};

/// A kept buffer that every step allocates anew, and then frees the old one. The step acquires and
/// releases `next`; the two buffers alternate.
struct Renewal {
  BufferId kept;
  BufferId next;
};

/// A release of memory that another stream may still use (record_stream).
struct UseAfterFree {
  OpId release;
  StreamId stream;
};

/// When the host comes to an op of a step and, of a UseAfterFree, when its stream has passed the
/// release: nanoseconds from the beginning of the step.
struct OpMoment {
  std::int64_t issued = 0;
  std::int64_t passed = 0;
};

struct EnginePlan {
  Program program;
  std::vector<KeptFrom> kept;  ///< of the first step, then of the second; in the order of the ops
  std::vector<Renewal> renewals{};
  std::vector<HostLaunches> host{};  ///< by the id of an op: to issue it
  std::int64_t padding = 0;          ///< elements in a full copy of the weights
  bool leaves_sms = false;           ///< kernels leave SMs to collectives
  std::int64_t outside = 0;          ///< bytes that are allocated outside PyTorch's allocator
  /// Ascending. The allocator can use such memory again when the host, at its next allocation, finds
  /// that the stream has passed.
  std::vector<UseAfterFree> in_use{};
  /// By op of a step in the host's order, repeats included. Empty: not known; then memory is
  /// returned when the host waits for a record after the release.
  std::vector<OpMoment> moments{};
};

}  // namespace mfsdp
