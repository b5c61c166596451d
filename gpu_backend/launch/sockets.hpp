// Non-blocking TCP sockets of a rendezvous.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
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

/// Listens at `port` (0: a free one) on all interfaces, or on loopback only. Errors: the port is
/// taken.
[[nodiscard]] Result<FileDescriptor> listen_at(std::uint16_t port, bool loopback_only);

/// The port that a socket listens at.
[[nodiscard]] Result<std::uint16_t> port_of(const FileDescriptor& listener);

/// The next pending connection; none if there is none.
[[nodiscard]] FileDescriptor accept_from(const FileDescriptor& listener);

/// The address of the peer, without the port: "10.0.0.5", "fe80::1"; "?" if it has disconnected.
[[nodiscard]] std::string address_of_peer(const FileDescriptor& socket);

/// Tries until the meeting point accepts a connection. Errors: none until `deadline`, with the
/// system's last error.
[[nodiscard]] Result<FileDescriptor> connect_to(const MeetingPoint& meeting,
                                                Clock::time_point deadline);

/// Result of a read or write: some bytes (none: it would block), or the end of the connection, with
/// the reason if it broke.
struct Transfer {
  std::size_t bytes = 0;
  bool ended = false;
  std::string reason = {};  ///< empty if the peer closed it
};

[[nodiscard]] Transfer send_to(const FileDescriptor& socket, std::span<const std::byte> bytes);
[[nodiscard]] Transfer receive_from(const FileDescriptor& socket, std::span<std::byte> bytes);

/// Milliseconds until `then` for poll(2): rounded up, at least 0, at most a minute.
[[nodiscard]] int poll_wait_until(Clock::time_point then);

}  // namespace mfsdp
