// The program's events on the device. Each instance of an event (core/plan/rotation.hpp) has several
// CUDA events, which its records use in turn. If the device hangs, this shows in which op, although
// the host has issued further records of the same event.
//
//   record 1 2 3 4 5 6 ...     the host issues up to three microbatches ahead
//   turn   1 2 3 0 1 2 ...     record 5 overwrites record 1, which has run
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/bound_plan.hpp"
#include "gpu_backend/cuda/handles.hpp"

namespace mfsdp::cuda {

/// An op that was issued and has not run.
struct UnfinishedOp {
  const BoundOp* op = nullptr;
  std::int64_t step = 0;
};

class EventRing {
 public:
  /// Has no event until create().
  EventRing() = default;

  /// For the current device. Only records on streams of copies between host and device have times.
  [[nodiscard]] static Result<EventRing> create(const Program& program);

  /// Queues record `number` (from 1, over the whole run) of the op's event. `work` is the op before
  /// the record, which messages name.
  [[nodiscard]] Result<void> record(const BoundOp& op, const BoundOp& work, std::int64_t step,
                                    std::int64_t number, cudaStream_t stream);
  /// Makes the stream wait for that record.
  [[nodiscard]] Result<void> wait(const BoundOp& op, std::int64_t number,
                                  cudaStream_t stream) const;

  /// The CUDA event of that record. `event`: place in the program's event_list(), as everywhere here.
  [[nodiscard]] cudaEvent_t at(std::size_t event, std::int64_t number) const {
    return events_[turn_of(event, number)].get();
  }
  /// Whether the device records the times of its records.
  [[nodiscard]] bool has_time(std::size_t event) const { return has_time_[event]; }

  /// The work of the first record, in the order of issue, that has not run. Any thread.
  [[nodiscard]] std::optional<UnfinishedOp> first_unfinished() const;

  /// Remembers which records have run by now. Called once, by any thread, at a failure: records
  /// after an aborted collective have no meaning.
  void keep_what_has_run();
  /// Whether record `number` of the event was remembered as run.
  [[nodiscard]] bool had_run(std::size_t event, std::int64_t number) const {
    return had_run_[turn_of(event, number)] >= number;
  }

 private:
  static constexpr std::size_t kTurns = 4;
  static std::size_t turn_of(std::size_t event, std::int64_t number) {
    return kTurns * event + static_cast<std::size_t>(number) % kTurns;
  }
  /// Written by the host's thread, read by others.
  struct LatestRecord {
    std::atomic<const BoundOp*> work{nullptr};
    std::atomic<std::int64_t> step{0};
    std::atomic<std::int64_t> sequence{0};  ///< over the records of all events, from 1; 0: none yet
    std::atomic<std::int64_t> number{0};    ///< over the records of this event; likewise
  };

  std::vector<OwnedEvent> events_;     ///< by turn_of(event, number)
  std::vector<bool> has_time_;         ///< by event
  std::vector<LatestRecord> latest_;   ///< as events_
  std::vector<std::int64_t> had_run_;  ///< as events_: number of the record, 0 for none
  std::int64_t sequence_ = 0;
};

}  // namespace mfsdp::cuda
