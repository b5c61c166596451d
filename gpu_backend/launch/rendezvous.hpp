// Ranks that are processes: how they connect, exchange data between steps, and are notified of a
// failure.
//
// Every rank has a TCP connection to rank 0, for small transfers that are not urgent: identifiers
// of communicators, norms, manifests of checkpoints. A separate thread serves the connections. It
// answers heartbeats and forwards failures while the host thread is busy.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/launch/launch_environment.hpp"

namespace mfsdp {

/// Must be equal on all ranks before they start. At most 256 bytes each.
struct MeetingIdentity {
  std::string run_id;
  std::string plan_hash;
  std::string build_id;

  friend bool operator==(const MeetingIdentity&, const MeetingIdentity&) = default;
};

/// The failure that ends a run: the first that rank 0 received.
struct RankFailure {
  std::int64_t rank = 0;
  std::string message;

  /// The message "rank 3: message", as Fault::environment.
  [[nodiscard]] Error error() const;
  friend bool operator==(const RankFailure&, const RankFailure&) = default;
};

struct RendezvousSettings {
  /// Timeout until all ranks are connected.
  std::chrono::milliseconds meet_deadline = std::chrono::minutes(5);
  /// Timeout of a collective: until all ranks call it, from the first that does.
  std::chrono::milliseconds call_deadline = std::chrono::minutes(10);
  /// The interval of heartbeats, and the time without one after which a rank has failed: its
  /// process is stopped, or its host is gone.
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  std::chrono::milliseconds silence = std::chrono::seconds(15);
  /// Called once when the run fails, on the rendezvous's own thread: aborts the operation that the
  /// host thread waits for (ncclCommAbort) and starts the watchdog's last countdown. Must not
  /// block.
  std::function<void(const RankFailure&)> on_failure = {};
};

/// Maximum bytes of a rank's input to one collective.
inline constexpr std::size_t kMostRendezvousBytes = std::size_t{16} << 20;

/// The runs of a plan (StopPoint) that rank 0 allows: all below `turns`. `last`: no more follow.
struct TurnGrant {
  std::int64_t turns = 0;
  bool last = false;

  friend bool operator==(const TurnGrant&, const TurnGrant&) = default;
};

/// Collectives are called from one host thread, equally often and in the same order on all ranks;
/// this is checked. The other functions may be called from any thread.
class Rendezvous {
 public:
  using Bytes = std::vector<std::byte>;
  /// Called about ten times a second while a call waits for other ranks. Its error ends the call.
  using Alive = std::function<Result<void>()>;

  /// Waits until all ranks are connected, each of which proves that it knows launch.secret
  /// (handshake.hpp). A world of one rank opens no socket.
  ///
  /// Errors that are equal on all connected ranks: another run id, world size, plan hash, build or
  /// protocol version, with both values and the ranks that have them; a rank that is out of range
  /// or exists twice; ranks that did not connect until the deadline, by number; a rank that
  /// disconnected meanwhile. Errors of one rank: an address that does not resolve, a port that is
  /// taken, a secret that differs from rank 0's. Unauthenticated connections are dropped and have
  /// no effect.
  [[nodiscard]] static Result<std::unique_ptr<Rendezvous>> meet(const RankLaunch& launch,
                                                                const MeetingIdentity& identity,
                                                                RendezvousSettings settings = {});

  /// Leaves normally. A rank that ends without this has failed. Waits at most some seconds until
  /// all frames are sent. Ranks that are done call barrier() first. Otherwise the others receive
  /// "rank 0 has left" at their next collective.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  [[nodiscard]] std::int64_t rank() const;
  [[nodiscard]] std::int64_t world_size() const;

  // Collectives. Each returns when every rank has called it. Errors: failure(); a rank calls
  // another collective, or none until call_deadline (all ranks are informed which); more than
  // kMostRendezvousBytes; the error of `alive`. The first error is final: later calls repeat it.

  /// Rank 0's bytes; those of other ranks are ignored.
  [[nodiscard]] Result<Bytes> broadcast(std::span<const std::byte> from_rank_0,
                                        const Alive& alive = {});
  /// Every rank's bytes, by rank; lengths may differ.
  [[nodiscard]] Result<std::vector<Bytes>> all_gather(std::span<const std::byte> bytes,
                                                      const Alive& alive = {});
  [[nodiscard]] Result<void> barrier(const Alive& alive = {});

  // Failures.

  /// Ends the run on all ranks with this rank's message, unless another failure came first. Does
  /// not block.
  void fail(std::string message);
  /// None if there is no failure. Does not block, so that loops that wait for a device can call it.
  [[nodiscard]] std::optional<RankFailure> failure() const;

  // Basis of StopPoint (gpu_backend/train/process_ranks.hpp). Only await_turn blocks, and only for
  // a turn that rank 0 has not allowed yet.

  /// Informs rank 0 that this rank requests the end of the run.
  void request_stop();
  /// Whether any rank has requested it. On rank 0.
  [[nodiscard]] bool stop_requested() const;
  /// Sends the grant to all ranks, rank 0 included. On rank 0; grants never shrink.
  void grant(TurnGrant grant);
  /// Returns as soon as `turn` is allowed or never will be: whether it runs. Errors: failure(), or
  /// that of `alive`.
  [[nodiscard]] Result<bool> await_turn(std::int64_t turn, const Alive& alive = {});

 private:
  class Hub;
  explicit Rendezvous(std::unique_ptr<Hub> hub);
  std::unique_ptr<Hub> hub_;
};

}  // namespace mfsdp
