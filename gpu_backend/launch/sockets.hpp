// TCP sockets of a rendezvous, none of which waits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"
#include "gpu_backend/launch/launch_environment.hpp"

namespace mfsdp {

using Clock = std::chrono::steady_clock;

/// For messages.
[[nodiscard]] inline double in_seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// Listens at `port` (0: one that is free) of this machine, or of its loopback alone. Errors: the
/// port is taken.
[[nodiscard]] Result<FileDescriptor> listen_at(std::uint16_t port, bool loopback_only);

/// The port that a socket listens at.
[[nodiscard]] Result<std::uint16_t> port_of(const FileDescriptor& listener);

/// The next connection that waits there; none where none does.
[[nodiscard]] FileDescriptor accept_from(const FileDescriptor& listener);

/// The address at the other end, without the port: "10.0.0.5", "fe80::1"; "?" where it is gone.
[[nodiscard]] std::string address_of_peer(const FileDescriptor& socket);

/// Tries until somebody answers at the meeting point. Errors: nobody does before `deadline`, with
/// what the system said last.
[[nodiscard]] Result<FileDescriptor> connect_to(const MeetingPoint& meeting,
                                                Clock::time_point deadline);

/// What a socket did: some bytes (none: it would wait), or its end, with the reason if it broke.
struct Transfer {
  std::size_t bytes = 0;
  bool ended = false;
  std::string reason = {};  ///< empty where the other side closed it
};

[[nodiscard]] Transfer send_to(const FileDescriptor& socket, std::span<const std::byte> bytes);
[[nodiscard]] Transfer receive_from(const FileDescriptor& socket, std::span<std::byte> bytes);

/// Milliseconds until `then` for poll(2): rounded up, at least 0, at most a minute.
[[nodiscard]] int poll_wait_until(Clock::time_point then);

}  // namespace mfsdp
