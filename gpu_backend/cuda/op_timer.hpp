// Times of kernels, collectives and copies by events around them, and times of the host's waits.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/runtime/backend.hpp"
#include "gpu_backend/cuda/device_clock.hpp"
#include "gpu_backend/cuda/handles.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

/// The steps whose ops are timed.
struct TimedSteps {
  PlanRole plan = PlanRole::train;   ///< ops of the plan of this role
  std::optional<std::int64_t> from;  ///< first timed step; none: no op is timed
  std::int64_t count = 0;            ///< number of steps
};

class OpTimer {
 public:
  explicit OpTimer(TimedSteps steps) : steps_(steps) {}

  /// Whether an op has a time: those that take time on a stream, and host_waits.
  [[nodiscard]] static bool times(const Op& op);

  [[nodiscard]] bool times_plan(const Plan& plan) const {
    return steps_.from && plan.role() == steps_.plan;
  }
  [[nodiscard]] bool times_step(std::int64_t step) const {
    return steps_.from && step >= *steps_.from;
  }

  /// Creates events for the timed steps of a plan; ops after the last event are not timed. A plan
  /// with very many ops is not timed at all, which adds a note to `notes`.
  [[nodiscard]] Result<void> make_room(const BoundPlan& plan, std::vector<std::string>& notes);

  /// Launches an op of a timed step. Within a group, an op ends where the group ends.
  [[nodiscard]] Result<void> run(const BoundOp& op, std::int64_t step, cudaStream_t stream,
                                 const Launch& launch);

  /// A wait of the host itself.
  void add_host_wait(const BoundOp& op, std::int64_t step, Nanos begin, Nanos end);

  /// The backend synchronises: the number of drains before the following ops increases.
  void count_drain() { ++drains_; }

  /// Times of all ops since the last call, in the order of issue. All of them must have run.
  [[nodiscard]] Result<std::vector<OpTiming>> take(const DeviceClock& clock);

 private:
  struct Timed {
    OpTiming timing;
    std::optional<std::size_t> events;  ///< the first of two; none: the host waited
    std::int64_t group = 0;             ///< number of the group that it is in; 0: none
  };

  [[nodiscard]] bool has_room() const { return timed_.size() < room_; }
  [[nodiscard]] Result<void> begin(const BoundOp& op, std::int64_t step, cudaStream_t stream);
  [[nodiscard]] Result<void> end(cudaStream_t stream);

  TimedSteps steps_;
  std::int64_t drains_ = 0;  ///< calls of synchronise() so far
  std::size_t room_ = 0;     ///< number of ops that have events
  std::vector<OwnedEvent> events_;
  std::vector<Timed> timed_;  ///< never longer than room_
  std::size_t used_ = 0;      ///< of events_
  bool grouped_ = false;
  std::int64_t groups_ = 0;        ///< begun so far
  std::vector<std::size_t> open_;  ///< indices into timed_: begun, not ended
};

}  // namespace mfsdp::cuda
