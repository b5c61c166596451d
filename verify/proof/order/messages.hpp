// Messages from class to class, for proofs that follow the contents of memory: a rank's n-th send to
// a peer on a communicator is that peer's n-th recv from it (rank_sequences.hpp).
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// The class of a class's peers: that of its first rank's peer. rank_sequences.hpp finds classes
/// whose ranks have peers of several classes (MF206).
class PeerClasses {
 public:
  /// `class_of` names the class of each rank of the mesh.
  PeerClasses(const Mesh& mesh, std::span<const std::uint32_t> class_of)
      : mesh_(mesh), class_of_(class_of) {}

  /// Requires that the class's ranks have such a peer.
  [[nodiscard]] std::uint32_t of(std::uint32_t own, const PeerStep& peer) const {
    std::size_t rank = 0;
    while (class_of_[rank] != own) ++rank;
    return class_of_[static_cast<std::size_t>(static_cast<std::int64_t>(rank) +
                                              peer.step * mesh_.stride(peer.axis))];
  }

 private:
  const Mesh& mesh_;
  std::span<const std::uint32_t> class_of_;
};

/// From one class to another, on a communicator.
struct MessageRoute {
  CommunicatorId communicator;
  std::uint32_t from = 0;  ///< class
  std::uint32_t to = 0;
  Axis axis = Axis::pp;
  std::int64_t step = 0;  ///< of the sender's peer

  friend auto operator<=>(const MessageRoute&, const MessageRoute&) = default;
};

/// Messages that were sent and not received.
template <class Payload>
using MessageQueues = std::map<MessageRoute, std::deque<Payload>>;

/// Sends and receives of one class.
template <class Payload>
class Mailbox {
 public:
  Mailbox(MessageQueues<Payload>& queues, const PeerClasses& peers, std::uint32_t own)
      : queues_(queues), peers_(peers), own_(own) {}

  void send(const Collective& send, Payload payload) {
    used_ = true;
    const std::uint32_t peer = peers_.of(own_, *send.peer);
    queues_[{send.communicator, own_, peer, send.peer->axis, send.peer->step}].push_back(
        std::move(payload));
  }
  /// Whether the message of a recv was sent.
  [[nodiscard]] bool has(const Collective& recv) const {
    const auto found = queues_.find(route_of(recv));
    return found != queues_.end() && !found->second.empty();
  }
  /// Requires has().
  [[nodiscard]] Payload take(const Collective& recv) {
    used_ = true;
    auto& queue = queues_.at(route_of(recv));
    Payload taken = std::move(queue.front());
    queue.pop_front();
    return taken;
  }
  /// Whether anything was sent or taken here.
  [[nodiscard]] bool used() const { return used_; }

 private:
  [[nodiscard]] MessageRoute route_of(const Collective& recv) const {
    return {recv.communicator, peers_.of(own_, *recv.peer), own_, recv.peer->axis,
            -recv.peer->step};
  }

  MessageQueues<Payload>& queues_;
  const PeerClasses& peers_;
  std::uint32_t own_;
  bool used_ = false;
};

}  // namespace mfsdp
