// Worlds of ranks for tests: as threads of this process, or as processes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu_backend/launch/rendezvous.hpp"
#include "gpu_backend/launch/sockets.hpp"

namespace mfsdp::test {

inline constexpr const char* kSecret = "a secret of tests alone";

/// A place to meet on this machine: the listener is there before any rank.
class Meeting {
 public:
  Meeting() : listener_(*listen_at(0, true)), port_(*mfsdp::port_of(listener_)) {}

  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// Rank 0 gets a copy of the listener, as from a supervisor.
  [[nodiscard]] RankLaunch launch(std::int64_t rank, std::int64_t world_size) const {
    RankLaunch launch;
    launch.place = {.rank = rank,
                    .world_size = world_size,
                    .local_rank = rank,
                    .local_world_size = world_size,
                    .source = LaunchSource::mfsdp};
    launch.meeting = {.address = "127.0.0.1", .port = port_};
    launch.secret = kSecret;
    if (rank == 0)
      launch.supervised =
          Supervision{.supervisor = 1, .watchdog = -1, .listener = ::dup(listener_.number())};
    return launch;
  }

 private:
  FileDescriptor listener_;
  std::uint16_t port_;
};

inline const MeetingIdentity kIdentity{.run_id = "run", .plan_hash = "hash", .build_id = "build"};

/// Deadlines long enough for a busy machine, where no test waits for them.
inline RendezvousSettings patient() {
  return {.meet_deadline = std::chrono::seconds(60),
          .call_deadline = std::chrono::seconds(60),
          .heartbeat = std::chrono::milliseconds(100),
          .silence = std::chrono::seconds(60)};
}

/// Runs work(rank) on a thread for each rank below `ranks`.
inline void run_threads(std::int64_t ranks, const std::function<void(std::int64_t)>& work) {
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < ranks; ++rank) threads.emplace_back(work, rank);
  for (std::thread& thread : threads) thread.join();
}

/// An unauthenticated connection, or one whose frames the test sends itself.
inline FileDescriptor connect_raw(const Meeting& meeting) {
  return std::move(
      *connect_to({"127.0.0.1", meeting.port()}, Clock::now() + std::chrono::seconds(10)));
}

/// The error's message of a call, or nothing.
template <class T>
std::string message_of(const Result<T>& outcome) {
  return outcome ? "" : outcome.error().message();
}

inline std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace mfsdp::test
