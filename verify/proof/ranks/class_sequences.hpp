// The collectives of each class of ranks, by communicator, for checks of every rank.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/plan/mesh.hpp"
#include "verify/proof/ranks/meetings.hpp"
#include "verify/proof/ranks/members.hpp"

namespace mfsdp::every_rank {

/// Messages to a peer, or from it, on a communicator.
struct Channel {
  CollectiveKind kind = CollectiveKind::send;
  Axis axis = Axis::pp;
  std::int64_t step = 0;

  friend auto operator<=>(const Channel&, const Channel&) = default;

  /// The same at the peer.
  [[nodiscard]] Channel other_end() const {
    return {.kind = kind == CollectiveKind::send ? CollectiveKind::recv : CollectiveKind::send,
            .axis = axis,
            .step = -step};
  }
};

[[nodiscard]] Channel channel_of(const Collective& collective);

/// A class's collectives on one communicator, in their order.
struct Sequence {
  std::vector<PlannedMeeting> meetings;
  /// By meeting: one past the last of its launch.
  std::vector<std::uint32_t> launch_ends;
  /// By meeting: with whom, where it is a send or a recv; its place among those of that kind.
  std::vector<const Collective*> point_to_point;
  std::vector<std::uint32_t> place;
  /// Sends and recvs by kind and peer: meetings.
  std::map<Channel, std::vector<std::uint32_t>> channels;
  std::vector<std::uint32_t> signatures;  ///< numbers that are equal where signatures are
  /// By meeting and communicator: how many must have ended before it begins.
  std::vector<std::uint32_t> needs;
};

/// By communicator.
using Sequences = std::vector<Sequence>;

class Sequencer {
 public:
  explicit Sequencer(std::size_t communicators) : communicators_(communicators) {}

  [[nodiscard]] Sequences sequences_of(const UnrolledPlan& unrolled);

 private:
  std::size_t communicators_;
  std::map<Signature, std::uint32_t> numbers_;
};

/// Each launch after the one before it in the host's order.
void add_launch_order(const UnrolledPlan& unrolled, Sequences& sequences);

/// All ranks of the mesh.
struct Ranks {
  std::span<const UnrolledPlan* const> plans;  ///< by class
  std::span<const std::uint32_t> class_of;     ///< by rank
  std::vector<Members> members = {};           ///< by communicator
  std::vector<Sequences> sequences = {};       ///< by class
  Mesh mesh;
  std::vector<char> pairs;  ///< by communicator: its ranks meet by two, in sends and recvs

  /// The rank at a peer's place, or nothing where the axis has ended.
  [[nodiscard]] std::optional<std::size_t> peer(std::size_t rank, Axis axis,
                                                std::int64_t step) const;
  /// The other end of a rank's n-th meeting, which is a send or a recv: the peer, and which of the
  /// peer's meetings. Requires that there is one.
  [[nodiscard]] std::pair<std::size_t, std::uint32_t> other_end(std::size_t rank, std::size_t k,
                                                                std::size_t n) const;
  [[nodiscard]] const Sequence& sequence(std::size_t rank, std::size_t communicator) const {
    return sequences[class_of[rank]][communicator];
  }
  /// The place of a rank's n-th collective of a communicator.
  [[nodiscard]] Place place(std::size_t rank, std::size_t communicator, std::size_t n) const;
};

}  // namespace mfsdp::every_rank
