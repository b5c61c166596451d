// The thread of a Rendezvous: reads, writes, and checks deadlines.
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "gpu_backend/launch/hub.hpp"

namespace mfsdp {
namespace {

/// When a rank leaves: time to send the remaining frames, and for the peer to read them.
constexpr std::chrono::seconds kLeaving{2};

}  // namespace

void Rendezvous::Hub::keep() {
  while (take_orders()) {
    poll_links(next_look());
    look_at_clock();
  }
}

/// Requests of the host's thread. False when no work is left.
bool Rendezvous::Hub::take_orders() {
  std::vector<SharedBytes> orders;
  std::optional<RankFailure> failure;
  bool leaves = false;
  {
    const std::scoped_lock lock(mutex_);
    orders.swap(orders_);
    if (!announced_) failure = failure_;
    leaves = leaves_;
  }
  if (leaves && !leave_by_) {
    leave_by_ = Clock::now() + kLeaving;
    orders.push_back(std::make_shared<const Bytes>(PayloadWriter().frame(FrameKind::goodbye)));
  }
  for (Link& link : links_) {
    if (!link.peer.socket) continue;
    link.out.insert(link.out.end(), orders.begin(), orders.end());
    write(link);
    if (leave_by_ && link.out.empty() && !link.is_closing) {
      // Closing at once would discard bytes that the peer has not read yet.
      ::shutdown(link.peer.socket.number(), SHUT_WR);
      link.is_closing = true;
    }
  }
  if (failure) {
    announced_ = true;
    if (settings_.on_failure) settings_.on_failure(*failure);
  }
  const bool all_closed =
      std::ranges::none_of(links_, [](const Link& link) { return bool(link.peer.socket); });
  return !leave_by_ || (!all_closed && Clock::now() < *leave_by_);
}

Clock::time_point Rendezvous::Hub::next_look() {
  Clock::time_point next =
      leave_by_.value_or(links_.empty() ? Clock::now() + settings_.call_deadline : next_beat_);
  const std::scoped_lock lock(mutex_);
  if (round_.kind) next = std::min(next, round_.deadline);
  return next;
}

void Rendezvous::Hub::poll_links(Clock::time_point until) {
  std::vector<pollfd> waiting{{wake_.number(), POLLIN, 0}};
  for (const Link& link : links_) {  // poll ignores negative numbers
    const auto events = static_cast<short>(link.out.empty() ? POLLIN : POLLIN | POLLOUT);
    waiting.push_back({link.peer.socket.number(), events, 0});
  }
  static_cast<void>(::poll(waiting.data(), waiting.size(), poll_wait_until(until)));
  eventfd_t ignored = 0;
  static_cast<void>(::eventfd_read(wake_.number(), &ignored));
  for (std::size_t i = 0; i < links_.size(); ++i)
    if (waiting[i + 1].revents != 0) read(links_[i]);
}

void Rendezvous::Hub::read(Link& link) {
  std::array<std::byte, std::size_t{64} << 10> bytes;  // NOLINT: filled by what is read
  const Transfer came = receive_from(link.peer.socket, bytes);
  if (came.bytes > 0) link.heard = Clock::now();
  link.peer.reader.add(std::span(bytes).first(came.bytes));
  while (true) {
    auto frame = link.peer.reader.next();
    if (!frame) return lose(link, frame.error().what);
    if (!*frame) break;
    take(link, **frame);
  }
  if (came.ended)
    lose(link, came.reason.empty() ? "its process has ended"
                                   : fmt::format("its connection broke ({}): its process has "
                                                 "ended, or its host is gone",
                                                 came.reason));
}

void Rendezvous::Hub::write(Link& link) const {
  while (!link.out.empty()) {
    const Bytes& frame = *link.out.front();
    const Transfer went =
        send_to(link.peer.socket, std::span<const std::byte>(frame).subspan(link.sent));
    link.sent += went.bytes;
    if (went.ended) link.out.clear();  // bytes received before the end are still to be read
    if (went.ended || went.bytes == 0) return;
    if (link.sent < frame.size()) continue;
    link.out.pop_front();
    link.sent = 0;
  }
}

/// The connection has ended. A peer that has not sent goodbye has failed.
void Rendezvous::Hub::lose(Link& link, const std::string& reason) {
  link.peer.socket.close();
  link.out.clear();
  if (link.has_left || leave_by_) return;
  const std::scoped_lock lock(mutex_);
  set_failure({.rank = link.peer.rank, .message = reason});
}

void Rendezvous::Hub::take(Link& link, const Frame& frame) {
  PayloadReader reader(frame.payload);
  const std::scoped_lock lock(mutex_);
  const auto refuse = [&] {
    set_failure({.rank = link.peer.rank,
                 .message = fmt::format("sent a frame of kind {} that cannot be read",
                                        static_cast<int>(frame.kind))});
  };
  switch (frame.kind) {
    case FrameKind::ping: return;
    case FrameKind::goodbye:
      link.has_left = true;
      left_.push_back(link.peer.rank);
      changed_.notify_all();
      return;
    case FrameKind::failed: {
      auto failure = decode_failure(frame.payload);
      if (!failure) return refuse();
      // A rank other than 0 may report only itself, or that it has lost rank 0.
      if (rank == 0 && failure->rank != 0) failure->rank = link.peer.rank;
      return set_failure(std::move(*failure));
    }
    case FrameKind::stop: stop_requested_ = true; return;
    case FrameKind::grant: {
      const auto turns = reader.number();
      const auto last = reader.number();
      if (!turns || !last || rank == 0) return refuse();
      grant_ = {.turns = *turns, .last = *last != 0};
      changed_.notify_all();
      return;
    }
    case FrameKind::give: {
      const auto number = reader.number();
      const auto kind = reader.number();
      auto bytes = reader.bytes();
      constexpr auto kKinds = std::ssize(Names<RendezvousCall>::values);
      if (!number || !kind || !bytes || rank != 0 || *kind < 0 || *kind >= kKinds) return refuse();
      return give(link.peer.rank, *number, static_cast<RendezvousCall>(*kind), std::move(*bytes));
    }
    case FrameKind::result: {
      const auto number = reader.number();
      auto bytes = reader.bytes();
      if (!number || !bytes || rank == 0 || *number != calls_ - 1) return refuse();
      result_ = std::move(*bytes);
      changed_.notify_all();
      return;
    }
    case FrameKind::hello:
    case FrameKind::welcome:
    case FrameKind::refused:
    case FrameKind::challenge:
    case FrameKind::proof:
    case FrameKind::accepted: break;
  }
  refuse();
}

/// Checks deadlines. Call it after reading: a process that was stopped and goes on finds the
/// others' heartbeats in its sockets.
void Rendezvous::Hub::look_at_clock() {
  const Clock::time_point now = Clock::now();
  if (now >= next_beat_ && !leave_by_) {
    next_beat_ = now + settings_.heartbeat;
    const auto ping = std::make_shared<const Bytes>(PayloadWriter().frame(FrameKind::ping));
    for (Link& link : links_)
      if (link.peer.socket && link.out.empty()) link.out.push_back(ping);
  }
  for (Link& link : links_)
    if (link.peer.socket && !link.has_left && now - link.heard > settings_.silence)
      lose(link, fmt::format("it sent no heartbeat for {} s: its process is stopped, or its "
                             "host is gone",
                             in_seconds(settings_.silence)));
  const std::scoped_lock lock(mutex_);
  if (failure_) return;
  if (round_.kind) {
    const auto missing = missing_in_round();
    const auto gone = std::ranges::find_if(
        missing, [&](std::int64_t r) { return std::ranges::find(left_, r) != left_.end(); });
    if (gone != missing.end())
      set_failure(
          {.rank = *gone,
           .message = fmt::format("has left while {} calls {}",
                                  name_ranks(std::array{round_.first}), to_string(*round_.kind))});
    else if (now >= round_.deadline)
      set_failure({.rank = missing.front(),
                   .message = fmt::format("{} did not come to {} (collective {}) within {} s",
                                          name_ranks(missing), to_string(*round_.kind), rounds_,
                                          in_seconds(settings_.call_deadline))});
  }
}

}  // namespace mfsdp
