// Which ranks of the mesh are in which communicator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Place of a rank on the mesh. Rank = outer * dp_shard + shard.
struct Coordinates {
  std::int64_t outer = 0;
  std::int64_t shard = 0;
};

[[nodiscard]] inline Coordinates coordinates_of(std::int64_t rank, const Mesh& mesh) {
  return {.outer = rank / mesh.dp_shard, .shard = rank % mesh.dp_shard};
}

/// The communicators of one purpose: ranks that differ only on its axes share one. Members are
/// counted in the order of ranks.
class Membership {
 public:
  Membership(const std::vector<Axis>& axes, const Mesh& mesh)
      : mesh_(mesh),
        outer_(std::ranges::count(axes, Axis::dp_outer) > 0),
        shard_(std::ranges::count(axes, Axis::dp_shard) > 0) {}

  /// Ranks of each communicator.
  [[nodiscard]] std::int64_t size() const {
    return (outer_ ? mesh_.dp_outer : 1) * (shard_ ? mesh_.dp_shard : 1);
  }
  /// How many communicators there are.
  [[nodiscard]] std::int64_t count() const { return mesh_.world_size() / size(); }

  /// The communicator that a rank is in.
  [[nodiscard]] std::int64_t of(const Coordinates& rank) const {
    return (outer_ ? 0 : rank.outer * (shard_ ? 1 : mesh_.dp_shard)) + (shard_ ? 0 : rank.shard);
  }
  /// Which of its members that rank is.
  [[nodiscard]] std::int64_t member(const Coordinates& rank) const {
    return (outer_ ? rank.outer * (shard_ ? mesh_.dp_shard : 1) : 0) + (shard_ ? rank.shard : 0);
  }
  /// The rank that is a member of a communicator.
  [[nodiscard]] std::int64_t rank(std::int64_t communicator, std::int64_t member) const {
    if (outer_ && shard_) return member;
    if (outer_) return member * mesh_.dp_shard + communicator;
    if (shard_) return communicator * mesh_.dp_shard + member;
    return communicator;
  }

 private:
  Mesh mesh_;
  bool outer_;
  bool shard_;
};

}  // namespace mfsdp
