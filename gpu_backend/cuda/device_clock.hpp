// When events of the device happened, on the host's clock.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"
#include "gpu_backend/cuda/handles.hpp"

namespace mfsdp::cuda {

/// The host's steady clock: the same for all processes of a host.
[[nodiscard]] Nanos host_now();

/// CUDA states times between two events as a float of milliseconds: exact to 0.1 us over a second,
/// not over an hour. So they are taken from a base event that follows the run.
class DeviceClock {
 public:
  /// For the current device, which is idle: the base is now.
  [[nodiscard]] static Result<DeviceClock> create(cudaStream_t stream);

  /// When a timed event's record, which has run, did so.
  [[nodiscard]] Result<Nanos> time_of(cudaEvent_t event) const;

  /// Lets the base follow, some seconds behind: records on `stream`. To be called now and then.
  [[nodiscard]] Result<void> follow(cudaStream_t stream);

  /// Takes the host's time anew, from an idle device.
  [[nodiscard]] Result<void> align(cudaStream_t stream);

 private:
  OwnedEvent base_;  ///< has run
  Nanos base_at_;
  OwnedEvent next_;
  bool next_recorded_ = false;
};

}  // namespace mfsdp::cuda
