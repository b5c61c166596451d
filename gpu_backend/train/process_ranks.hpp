// What hosts of ranks agree on where each rank is a process: over the rendezvous.
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

/// An error where ranks would not begin at the same place: what one host sees of a shared folder,
/// another may not see yet. `alive`: as in HostGather.
[[nodiscard]] Result<void> agree_on_start(HostGather& gather, std::int64_t rank,
                                          const TrainPosition& start,
                                          const HostGather::Alive& alive);

/// Rank 0 allows turns ahead of its own: asked about turn t it allows all up to t + kTurnsAhead,
/// and tells the others without waiting for them. Whoever asks about a turn that is allowed gets
/// its answer at once; so no step waits for the network unless a rank is further ahead of rank 0
/// than that, where its device has work queued anyway. A request to stop, from any rank, ends the
/// allowing: every rank runs the turns that were allowed and refuses the next, which is the same
/// one on all of them. A run ends at most kTurnsAhead turns later than that of SharedStopPoint.
class ProcessStopPoint final : public StopPoint {
 public:
  /// A host is at most two steps ahead of its device.
  static constexpr std::int64_t kTurnsAhead = 2;

  /// `requested`: whether this rank would like the run to end, as Ctrl-C's flag; asked on the host
  /// thread, also while it waits. `alive`: as in HostGather.
  ProcessStopPoint(Rendezvous& rendezvous, std::function<bool()> requested,
                   Rendezvous::Alive alive = {})
      : rendezvous_(rendezvous), requested_(std::move(requested)), alive_(std::move(alive)) {}

  [[nodiscard]] Result<bool> runs(std::int64_t turn) override;

  /// Whether some turn was refused.
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
