// From an op of the plan, of any kind, to what launches it.
#pragma once

#include <cstdint>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/bound_plan.hpp"
#include "gpu_backend/cuda/communicators.hpp"
#include "gpu_backend/cuda/device_streams.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

/// What a rank's ops run with. All of it outlives the launches.
struct OpTargets {
  const Program& program;
  std::int64_t rank = 0;
  bool poison = false;  ///< a release poisons its buffer
  const DeviceStreams& streams;
  Communicators& communicators;
  KernelBinder& kernels;
};

/// No launch where nothing is to be queued: acquires, empty collectives, copies onto themselves.
/// Records and waits have none either: they are the event ring's. `op` stays where it is. Errors:
/// those of KernelBinder and check_collective; a copy that is not of equal contiguous bytes.
[[nodiscard]] Result<Launch> bind_op(const BoundOp& op, const OpTargets& targets);

}  // namespace mfsdp::cuda
