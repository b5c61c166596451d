// Converts an op of the plan, of any kind, to its launch.
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

/// The resources of a rank's ops. All of them outlive the launches.
struct OpTargets {
  const Program& program;
  std::int64_t rank = 0;
  bool poison = false;  ///< a release poisons its buffer
  const DeviceStreams& streams;
  Communicators& communicators;
  KernelBinder& kernels;
};

/// No launch if nothing is queued: acquires, empty collectives, copies onto themselves. Records and
/// waits have none either, because the event ring executes them. `op` keeps its address. Errors:
/// those of KernelBinder and check_collective; a copy whose sides are not contiguous or differ in
/// size.
[[nodiscard]] Result<Launch> bind_op(const BoundOp& op, const OpTargets& targets);

}  // namespace mfsdp::cuda
