#include "gpu_backend/launch/sockets.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>

namespace mfsdp {
namespace {

constexpr int kStream = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr std::chrono::milliseconds kBetweenTries{50};
constexpr std::chrono::seconds kOneTry{3};  ///< timeout of a connection attempt to a host that does
                                            ///< not answer

std::string reason_of(int error) { return std::generic_category().message(error); }

/// Sends small frames without delay (TCP_NODELAY): they are too few to load a network.
void set_option(const FileDescriptor& socket, int level, int name, int value) {
  static_cast<void>(::setsockopt(socket.number(), level, name, &value, sizeof value));
}

/// One socket for IPv6 and IPv4 if the machine has IPv6, else for IPv4.
FileDescriptor bind_any(std::uint16_t port, bool loopback_only, int& error) {
  if (!loopback_only) {
    FileDescriptor socket(::socket(AF_INET6, kStream, 0));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (socket &&
        ::bind(socket.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
      return socket;
    error = errno;
    if (error == EADDRINUSE) return {};
  }
  FileDescriptor socket(::socket(AF_INET, kStream, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
    return socket;
  error = errno;
  return {};
}

/// A socket can connect to itself: it calls a port without a listener and is given that port.
bool meets_itself(const FileDescriptor& socket) {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_size = sizeof own;
  socklen_t other_size = sizeof other;
  return ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(socket.number(), reinterpret_cast<sockaddr*>(&other), &other_size) == 0 &&
         own_size == other_size && std::memcmp(&own, &other, own_size) == 0;
}

FileDescriptor try_address(const addrinfo& address, Clock::time_point deadline,
                           std::string& reason) {
  FileDescriptor socket(::socket(address.ai_family, kStream, 0));
  if (!socket) {
    reason = reason_of(errno);
    return {};
  }
  int error = 0;
  if (::connect(socket.number(), address.ai_addr, address.ai_addrlen) != 0) error = errno;
  if (error == EINPROGRESS) {
    pollfd waiting{.fd = socket.number(), .events = POLLOUT, .revents = 0};
    const auto until = std::min(deadline, Clock::now() + kOneTry);
    socklen_t size = sizeof error;
    if (::poll(&waiting, 1, poll_wait_until(until)) == 1)
      ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size);
    else
      error = ETIMEDOUT;
  }
  if (error == 0 && meets_itself(socket)) error = ECONNREFUSED;
  if (error != 0) {
    reason = reason_of(error);
    return {};
  }
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

FileDescriptor try_once(const MeetingPoint& meeting, Clock::time_point deadline,
                        std::string& reason) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      ::getaddrinfo(meeting.address.c_str(), std::to_string(meeting.port).c_str(), &hints, &found);
  if (code != 0) {
    reason = ::gai_strerror(code);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    if (FileDescriptor socket = try_address(*each, deadline, reason)) return socket;
  return {};
}

Transfer transfer_of(ssize_t moved, bool reads) {
  if (moved > 0) return {.bytes = static_cast<std::size_t>(moved)};
  if (moved == 0) return {.ended = reads};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
  return {.ended = true, .reason = reason_of(errno)};
}

}  // namespace

Result<FileDescriptor> listen_at(std::uint16_t port, bool loopback_only) {
  int error = 0;
  FileDescriptor socket = bind_any(port, loopback_only, error);
  if (socket && ::listen(socket.number(), SOMAXCONN) == 0) return socket;
  if (socket) error = errno;
  return fail("rendezvous",
              fmt::format("rank 0 cannot listen at port {}: {}; MFSDP_MASTER_PORT names another",
                          port, reason_of(error)),
              Fault::environment);
}

Result<std::uint16_t> port_of(const FileDescriptor& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return fail("rendezvous", "the listening socket is none: " + reason_of(errno),
                Fault::environment);
  const std::uint16_t port = address.ss_family == AF_INET6
                                 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                 : reinterpret_cast<sockaddr_in*>(&address)->sin_port;
  return ntohs(port);
}

FileDescriptor accept_from(const FileDescriptor& listener) {
  FileDescriptor socket(
      ::accept4(listener.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  return socket;
}

std::string address_of_peer(const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  if (::getpeername(socket.number(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text.data(), text.size(), nullptr,
                    0, NI_NUMERICHOST) != 0)
    return "?";
  // An IPv4 address, as an IPv6 socket shows it.
  constexpr std::string_view kMapped = "::ffff:";
  std::string_view shown = text.data();
  if (shown.starts_with(kMapped) && shown.find('.') != std::string_view::npos)
    shown.remove_prefix(kMapped.size());
  return std::string(shown);
}

Result<FileDescriptor> connect_to(const MeetingPoint& meeting, Clock::time_point deadline) {
  std::string reason = "no address";
  do {
    if (FileDescriptor socket = try_once(meeting, deadline, reason)) return socket;
    std::this_thread::sleep_for(kBetweenTries);
  } while (Clock::now() < deadline);
  return fail("rendezvous",
              fmt::format("rank 0 does not answer at {} port {}: {}", meeting.address, meeting.port,
                          reason),
              Fault::environment);
}

Transfer send_to(const FileDescriptor& socket, std::span<const std::byte> bytes) {
  return transfer_of(
      ::send(socket.number(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT), false);
}

Transfer receive_from(const FileDescriptor& socket, std::span<std::byte> bytes) {
  return transfer_of(::recv(socket.number(), bytes.data(), bytes.size(), MSG_DONTWAIT), true);
}

int poll_wait_until(Clock::time_point then) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::minutes(1);
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(then - Clock::now());
  return static_cast<int>(std::clamp(wait, std::chrono::milliseconds(0), kLongest).count());
}

}  // namespace mfsdp
