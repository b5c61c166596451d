// Times of ops by events around them: of kernels, collectives, copies, and the host's own waits.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/runtime/backend.hpp"
#include "gpu_backend/cuda/device_clock.hpp"
#include "gpu_backend/cuda/handles.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

/// Which ops are timed.
struct TimedSteps {
  std::string plan;                  ///< those of this plan
  std::optional<std::int64_t> from;  ///< from this step on; none: no op
  std::int64_t count = 0;            ///< so many steps
};

class OpTimer {
 public:
  explicit OpTimer(TimedSteps steps) : steps_(std::move(steps)) {}

  /// Whether an op's times are kept: those that take a stream's time, and host_waits.
  [[nodiscard]] static bool times(const Op& op);

  [[nodiscard]] bool times_plan(const Plan& plan) const {
    return steps_.from && plan.name == steps_.plan;
  }
  [[nodiscard]] bool times_step(std::int64_t step) const {
    return steps_.from && step >= *steps_.from;
  }

  /// Makes events for the timed steps of a plan whose ops are timed; what comes after them is not
  /// timed. A plan of very many ops is not timed at all: a note in `notes` says so.
  [[nodiscard]] Result<void> make_room(const BoundPlan& plan, std::vector<std::string>& notes);

  /// Launches an op of a timed step. Within a group, ops end where the group does.
  [[nodiscard]] Result<void> run(const BoundOp& op, std::int64_t step, cudaStream_t stream,
                                 const Launch& launch);

  /// A wait of the host itself.
  void add_host_wait(const BoundOp& op, std::int64_t step, Nanos begin, Nanos end);

  /// The backend synchronises: ops that follow come behind one drain more.
  void count_drain() { ++drains_; }

  /// Of all ops since the last call, in the order of issue. All have run.
  [[nodiscard]] Result<std::vector<OpTiming>> take(const DeviceClock& clock);

 private:
  struct Timed {
    OpTiming timing;
    std::optional<std::size_t> events;  ///< the first of two; none: the host waited
  };

  [[nodiscard]] bool has_room() const { return timed_.size() < room_; }
  [[nodiscard]] Result<void> begin(const BoundOp& op, std::int64_t step, cudaStream_t stream);
  [[nodiscard]] Result<void> end(cudaStream_t stream);

  TimedSteps steps_;
  std::int64_t drains_ = 0;  ///< calls of synchronise() so far
  std::size_t room_ = 0;     ///< ops that there are events for
  std::vector<OwnedEvent> events_;
  std::vector<Timed> timed_;  ///< never longer than room_
  std::size_t used_ = 0;      ///< of events_
  bool grouped_ = false;
  std::vector<std::size_t> open_;  ///< in timed_: begun, not ended
};

}  // namespace mfsdp::cuda
