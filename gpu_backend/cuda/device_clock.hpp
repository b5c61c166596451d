// Converts times of device events to the host's clock.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"
#include "gpu_backend/cuda/handles.hpp"

namespace mfsdp::cuda {

/// The host's steady clock: the same for all processes of a host.
[[nodiscard]] Nanos host_now();

/// CUDA reports the time between two events as a float of milliseconds: exact to 0.1 us over a
/// second, but not over an hour. Therefore times are relative to a base event that moves along with
/// the run.
class DeviceClock {
 public:
  /// For the current device, which must be idle. The base event is recorded now.
  [[nodiscard]] static Result<DeviceClock> create(cudaStream_t stream);

  /// The time of a timed event's record, which must have run.
  [[nodiscard]] Result<Nanos> time_of(cudaEvent_t event) const;

  /// Moves the base event forward, to some seconds before now, by a record on `stream`. Call it
  /// from time to time.
  [[nodiscard]] Result<void> follow(cudaStream_t stream);

  /// Measures the offset of the host's clock again; the device must be idle.
  [[nodiscard]] Result<void> align(cudaStream_t stream);

 private:
  OwnedEvent base_;  ///< has run
  Nanos base_at_;
  OwnedEvent next_;
  bool next_recorded_ = false;
};

}  // namespace mfsdp::cuda
