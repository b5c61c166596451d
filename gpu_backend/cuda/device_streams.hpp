// The streams of a rank on its GPU: one for each of the program's, and one for work outside plans.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/bound_plan.hpp"
#include "gpu_backend/cuda/handles.hpp"

namespace mfsdp::cuda {

class DeviceStreams {
 public:
  /// Has no stream until create().
  DeviceStreams() = default;

  /// For the current device.
  [[nodiscard]] static Result<DeviceStreams> create(const Program& program);

  [[nodiscard]] cudaStream_t of(const BoundOp& op) const { return streams_[op.stream].get(); }
  /// For copies and fills between plans.
  [[nodiscard]] cudaStream_t setup() const { return setup_.get(); }

  /// Records an event after all issued work, on each of the program's streams.
  [[nodiscard]] Result<void> record_ends();
  [[nodiscard]] std::span<const OwnedEvent> ends() const { return ends_; }

  /// Returns when the program's streams are idle, or after `longest`. Ignores whether they have
  /// failed.
  void let_end(std::chrono::seconds longest) const;

 private:
  std::vector<OwnedStream> streams_;  ///< by position in Program::streams
  OwnedStream setup_;
  std::vector<OwnedEvent> ends_;  ///< as streams_
};

}  // namespace mfsdp::cuda
