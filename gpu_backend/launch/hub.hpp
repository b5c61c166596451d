// Internals of a Rendezvous: its connections, the thread that serves them, and the state that both
// threads share.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpu_backend/launch/connect.hpp"
#include "gpu_backend/launch/sockets.hpp"

namespace mfsdp {

enum class RendezvousCall : std::int64_t { broadcast, all_gather, barrier };

constexpr auto value_names(RendezvousCall) {
  return name_array("broadcast", "all_gather", "barrier");
}

class Rendezvous::Hub {
 public:
  /// Rank 0 has a peer for each other rank. Another rank has rank 0 as its only peer.
  Hub(const RankPlace& place, RendezvousSettings settings, std::vector<Peer> peers);
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;
  ~Hub();

  /// The result in the encoding of finish_round.
  [[nodiscard]] Result<Bytes> call(RendezvousCall kind, std::span<const std::byte> given,
                                   const Alive& alive);
  void fail(std::string message);
  [[nodiscard]] std::optional<RankFailure> failure() const;
  void request_stop();
  [[nodiscard]] bool stop_requested() const;
  void grant(TurnGrant grant);
  [[nodiscard]] Result<bool> await_turn(std::int64_t turn, const Alive& alive);

  const std::int64_t rank;
  const std::int64_t world_size;

 private:
  using SharedBytes = std::shared_ptr<const Bytes>;
  using Lock = std::unique_lock<std::mutex>;

  /// A connection, as its thread keeps it.
  struct Link {
    Peer peer;
    std::deque<SharedBytes> out;
    std::size_t sent = 0;  ///< bytes of the first element of `out`
    Clock::time_point heard;
    bool has_left = false;    ///< has sent goodbye
    bool is_closing = false;  ///< no more frames follow; the peer was informed
  };

  /// The current collective, on rank 0.
  struct Round {
    std::optional<RendezvousCall> kind;  ///< none: no rank has called it
    std::int64_t first = 0;              ///< the rank that called first
    std::vector<std::optional<Bytes>> given;
    std::size_t count = 0;
    Clock::time_point deadline;
  };

  // Called on the host's thread, or with the lock held.
  [[nodiscard]] Result<void> wait_until(Lock& lock, const auto& done, const Alive& alive);
  void send_all(SharedBytes frame);
  void wake() const;
  void give(std::int64_t rank, std::int64_t number, RendezvousCall kind, Bytes bytes);
  void finish_round();
  void set_failure(RankFailure failure);
  [[nodiscard]] std::vector<std::int64_t> missing_in_round() const;

  // Called on the connections' thread.
  void keep();
  [[nodiscard]] bool take_orders();
  [[nodiscard]] Clock::time_point next_look();
  void poll_links(Clock::time_point until);
  void read(Link& link);
  void take(Link& link, const Frame& frame);
  void write(Link& link) const;
  void lose(Link& link, const std::string& reason);
  void look_at_clock();

  const RendezvousSettings settings_;
  FileDescriptor wake_;
  std::vector<Link> links_;  ///< used only by the thread
  Clock::time_point next_beat_;
  std::optional<Clock::time_point> leave_by_;
  bool announced_ = false;  ///< whether settings_.on_failure was called

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SharedBytes> orders_;  ///< frames for all links
  std::optional<RankFailure> failure_;
  Round round_;
  std::int64_t calls_ = 0;          ///< collectives that this rank's host called
  std::int64_t rounds_ = 0;         ///< finished, on rank 0
  std::optional<Bytes> result_;     ///< of the collective that the host waits for
  std::vector<std::int64_t> left_;  ///< ranks that have left normally
  TurnGrant grant_;
  bool stop_requested_ = false;
  bool leaves_ = false;

  std::thread thread_;  ///< last: it uses the members above
};

}  // namespace mfsdp
