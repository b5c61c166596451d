// Times of ops by events around them: of kernels, collectives, copies, and the host's own waits.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/error.hpp"
#include "core/runtime/backend.hpp"
#include "gpu_backend/cuda/device_clock.hpp"
#include "gpu_backend/cuda/handles.hpp"

namespace mfsdp::cuda {

class OpTimer {
 public:
  /// Whether an op's times are kept: those that take a stream's time, and host_waits.
  [[nodiscard]] static bool times(const Op& op);

  /// Makes events for so many ops; what comes after them is not timed.
  [[nodiscard]] Result<void> make_room(std::int64_t ops);

  /// Before and after the op's launch. Within a group, ops end where the group does.
  [[nodiscard]] Result<void> begin(const BoundOp& op, std::int64_t step, std::int64_t drains,
                                   cudaStream_t stream);
  [[nodiscard]] Result<void> end(cudaStream_t stream);
  void begin_group() { grouped_ = true; }
  [[nodiscard]] Result<void> end_group(cudaStream_t stream);

  /// A wait of the host itself.
  void add_host_wait(const BoundOp& op, std::int64_t step, std::int64_t drains, Nanos begin,
                     Nanos end);

  /// Of all ops since the last call, in the order of issue. All have run.
  [[nodiscard]] Result<std::vector<OpTiming>> take(const DeviceClock& clock);

 private:
  struct Timed {
    OpTiming timing;
    std::optional<std::size_t> events;  ///< the first of two; none: the host waited
  };

  [[nodiscard]] bool has_room() const { return timed_.size() < room_; }

  std::size_t room_ = 0;
  std::vector<OwnedEvent> events_;
  std::vector<Timed> timed_;  ///< never longer than room_
  std::size_t used_ = 0;      ///< of events_
  bool grouped_ = false;
  std::vector<std::size_t> open_;  ///< in timed_: begun, not ended
};

}  // namespace mfsdp::cuda
