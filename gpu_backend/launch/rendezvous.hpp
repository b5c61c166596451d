// Ranks that are processes: how they find each other, talk between steps, and learn of a failure.
//
// A TCP star at rank 0, for bytes that do not hurry: identifiers of communicators, norms, manifests
// of checkpoints. A thread of its own keeps the connections: it answers heartbeats and carries news
// of a failure whatever the host thread is at.
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

/// What must be the same on all ranks before they start. At most 256 bytes each.
struct MeetingIdentity {
  std::string run_id;
  std::string plan_hash;
  std::string build_id;

  friend bool operator==(const MeetingIdentity&, const MeetingIdentity&) = default;
};

/// The failure that ends a run: the first that rank 0 heard of.
struct RankFailure {
  std::int64_t rank = 0;
  std::string message;

  /// "rank 3: message", a fault of the environment.
  [[nodiscard]] Error error() const;
  friend bool operator==(const RankFailure&, const RankFailure&) = default;
};

struct RendezvousSettings {
  /// For all ranks to come.
  std::chrono::milliseconds meet_deadline = std::chrono::minutes(5);
  /// For all ranks to come to one collective, from the first that does.
  std::chrono::milliseconds call_deadline = std::chrono::minutes(10);
  /// Between signs of life, and without one until a rank counts as failed: a stopped process, a
  /// host that is gone.
  std::chrono::milliseconds heartbeat = std::chrono::seconds(1);
  std::chrono::milliseconds silence = std::chrono::seconds(15);
  /// Called once when the run fails, on the rendezvous's own thread: to abort what the host thread
  /// waits for (ncclCommAbort) and to start the watchdog's last countdown. Must not wait.
  std::function<void(const RankFailure&)> on_failure = {};
};

/// Most bytes that a rank gives to one collective.
inline constexpr std::size_t kMostRendezvousBytes = std::size_t{16} << 20;

/// Turns of a run (StopPoint) that rank 0 allows: all below `turns`. `last`: no more will come.
struct TurnGrant {
  std::int64_t turns = 0;
  bool last = false;

  friend bool operator==(const TurnGrant&, const TurnGrant&) = default;
};

/// Collectives are called from one host thread, equally often and in the same order on all ranks,
/// which is checked. Everything else may be called from any thread.
class Rendezvous {
 public:
  using Bytes = std::vector<std::byte>;
  /// Asked some ten times a second while others are awaited: its error ends the call.
  using Alive = std::function<Result<void>()>;

  /// Waits until all ranks are there, each of which proves that it knows launch.secret
  /// (handshake.hpp). A world of one rank opens no socket.
  ///
  /// Errors, the same line on every rank that came: another run id, world size, plan hash, build or
  /// protocol version, with both values and the ranks that have them; a rank out of range or
  /// double; ranks that did not come until the deadline, by number; a rank that went away
  /// meanwhile. And of one rank: an address that does not resolve, a port that is taken, another
  /// secret than rank 0's. Connections that prove nothing are dropped and change nothing.
  [[nodiscard]] static Result<std::unique_ptr<Rendezvous>> meet(const RankLaunch& launch,
                                                                const MeetingIdentity& identity,
                                                                RendezvousSettings settings = {});

  /// Leaves in order: whoever ends without that has failed. Waits some seconds at most until what
  /// was said has gone out. Ranks that are done call barrier() first, or those that are not hear
  /// "rank 0 has left" at their next collective.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  [[nodiscard]] std::int64_t rank() const;
  [[nodiscard]] std::int64_t world_size() const;

  // Collectives. Each returns when every rank has called it. Errors: failure(); a rank that calls
  // another collective, or none until call_deadline (all ranks hear which); more than
  // kMostRendezvousBytes; that of `alive`. The first error is the last word: later calls repeat it.

  /// Rank 0's bytes; what other ranks give is ignored.
  [[nodiscard]] Result<Bytes> broadcast(std::span<const std::byte> from_rank_0,
                                        const Alive& alive = {});
  /// Every rank's bytes, by rank; lengths may differ.
  [[nodiscard]] Result<std::vector<Bytes>> all_gather(std::span<const std::byte> bytes,
                                                      const Alive& alive = {});
  [[nodiscard]] Result<void> barrier(const Alive& alive = {});

  // Failures.

  /// Ends the run on all ranks, with this rank's message, unless another came first. Does not wait.
  void fail(std::string message);
  /// None while all is well. Does not wait: for loops that wait for a device.
  [[nodiscard]] std::optional<RankFailure> failure() const;

  // Turns: what StopPoint is made of (gpu_backend/train/process_ranks.hpp). Nothing of it but
  // await_turn waits, and that only for a turn that rank 0 has not allowed yet.

  /// Tells rank 0 that this rank would like the run to end.
  void request_stop();
  /// Whether any rank has. On rank 0.
  [[nodiscard]] bool stop_requested() const;
  /// Tells all ranks, rank 0 among them. On rank 0; grants never shrink.
  void grant(TurnGrant grant);
  /// Returns as soon as `turn` is allowed or will never be: whether it runs. Errors: failure(), or
  /// that of `alive`.
  [[nodiscard]] Result<bool> await_turn(std::int64_t turn, const Alive& alive = {});

 private:
  class Hub;
  explicit Rendezvous(std::unique_ptr<Hub> hub);
  std::unique_ptr<Hub> hub_;
};

}  // namespace mfsdp
