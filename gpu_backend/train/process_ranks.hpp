// Agreement between ranks that are processes, over the rendezvous.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/launch/rendezvous.hpp"
#include "gpu_backend/train/host_gather.hpp"
#include "gpu_backend/train/stop_point.hpp"
#include "gpu_backend/train/train_position.hpp"

namespace mfsdp {

/// Errors: those of Rendezvous::all_gather; bytes that are no doubles.
class ProcessHostGather final : public HostGather {
 public:
  explicit ProcessHostGather(Rendezvous& rendezvous) : rendezvous_(rendezvous) {}

  [[nodiscard]] Result<std::vector<std::vector<double>>> all_gather(std::int64_t rank,
                                                                    std::vector<double> values,
                                                                    const Alive& alive) override;

 private:
  Rendezvous& rendezvous_;
};

/// An error if ranks would resume at different positions: a shared folder may look different on
/// another host for some time. `alive`: as in HostGather.
[[nodiscard]] Result<void> agree_on_start(HostGather& gather, std::int64_t rank,
                                          const TrainPosition& start,
                                          const HostGather::Alive& alive);

/// Rank 0 grants runs of plans ahead of its own: asked about number t, it grants all up to t +
/// kTurnsAhead and sends this to the others without waiting for them. A rank that asks about a
/// granted number gets its answer at once. So no step waits for the network unless a rank is
/// further ahead of rank 0 than that, and then its device has queued work anyway. After a request
/// to stop from any rank, rank 0 grants no more. Every rank runs what was granted and refuses the
/// next number, which is the same one on all of them. A run ends at most kTurnsAhead plans later
/// than with SharedStopPoint.
class ProcessStopPoint final : public StopPoint {
 public:
  /// A host is at most two steps ahead of its device.
  static constexpr std::int64_t kTurnsAhead = 2;

  /// `requested`: whether this rank requests the end of the run, such as Ctrl-C's flag. It is
  /// called on the host thread, also during waits. `alive`: as in HostGather.
  ProcessStopPoint(Rendezvous& rendezvous, std::function<bool()> requested,
                   Rendezvous::Alive alive = {})
      : rendezvous_(rendezvous), requested_(std::move(requested)), alive_(std::move(alive)) {}

  [[nodiscard]] Result<bool> runs(std::int64_t turn) override;

  /// Whether a turn was refused.
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  [[nodiscard]] bool asked_to_stop();

  Rendezvous& rendezvous_;
  std::function<bool()> requested_;
  Rendezvous::Alive alive_;
  bool told_ = false;
  bool stopped_ = false;
};

}  // namespace mfsdp
