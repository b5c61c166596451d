// The device mesh: ranks as a grid of named axes, and the conversion between a rank and its
// indices.
//
// The last axis of the list varies fastest. dp_outer 2 x dp_shard 4:
//
//   dp_shard     0  1  2  3
//   dp_outer 0   0  1  2  3      rank = dp_outer * 4 + dp_shard
//   dp_outer 1   4  5  6  7
//
// A model with experts can have a second grid over the same ranks, another list of axes, on which
// the experts' parameters are placed.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// One value for each axis that a mesh may have.
template <class T>
struct PerAxis {
  std::array<T, Names<Axis>::values.size()> values{};

  [[nodiscard]] T& operator[](Axis axis) { return values[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] const T& operator[](Axis axis) const {
    return values[static_cast<std::size_t>(axis)];
  }
  friend bool operator==(const PerAxis&, const PerAxis&) = default;
};

struct MeshAxis {
  Axis axis = Axis::dp_shard;
  std::int64_t size = 1;  ///< ranks along it

  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

/// Axes of one rank are left out, so that equal meshes are equal lists.
struct Mesh {
  std::vector<MeshAxis> dense{};    ///< of pp, dp_outer, dp_shard, cp, tp; outermost first
  std::vector<MeshAxis> experts{};  ///< of pp, expt_dp_outer, expt_dp, ep, etp; often empty

  friend bool operator==(const Mesh&, const Mesh&) = default;

  /// Ranks in all. Throws OverflowError beyond 63 bits.
  [[nodiscard]] std::int64_t world_size() const;
  /// Ranks along an axis; 1 for an axis that the mesh lacks.
  [[nodiscard]] std::int64_t size(Axis axis) const;
  /// Ranks from one index of an axis to the next; 1 for an axis that the mesh lacks.
  [[nodiscard]] std::int64_t stride(Axis axis) const;
  /// The rank's index on an axis.
  [[nodiscard]] std::int64_t index(std::int64_t rank, Axis axis) const {
    return rank / stride(axis) % size(axis);
  }
  /// Sets the size of an axis of the dense grid, in the order of Axis.
  void resize(Axis axis, std::int64_t ranks);
};

/// dp_outer groups of dp_shard ranks, neighbours in a group.
[[nodiscard]] Mesh data_parallel_mesh(std::int64_t dp_outer, std::int64_t dp_shard);

/// The mesh with a grid for experts, pp x expt_dp_outer x expt_dp x ep: each `ep` neighbouring ranks
/// divide a block's experts. With ep of at most 1 there is no second grid. Requires that ep divides
/// the ranks of dp_shard, cp and tp together: on this grid all of these are alike.
[[nodiscard]] Mesh with_expert_grid(Mesh mesh, std::int64_t ep);

/// Refuses axes of one rank, axes that are repeated, out of order or on the wrong grid, and grids
/// with different numbers of ranks. The error's place is "mesh.dense" or "mesh.experts".
[[nodiscard]] Result<void> check_mesh(const Mesh& mesh);

/// The communicators over some axes: ranks that differ only on these share one. Communicators and
/// their members are numbered in the order of ranks. Axes of one rank make no difference.
class Membership {
 public:
  /// All axes must be on one grid.
  Membership(const std::vector<Axis>& axes, const Mesh& mesh);

  /// Ranks of each communicator.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// The number of communicators.
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// The communicator of a rank.
  [[nodiscard]] std::int64_t of(std::int64_t rank) const { return number_of(rank, others_); }
  /// The rank's index among the members of its communicator.
  [[nodiscard]] std::int64_t member(std::int64_t rank) const { return number_of(rank, own_); }
  /// The rank that is a member of a communicator.
  [[nodiscard]] std::int64_t rank(std::int64_t communicator, std::int64_t member) const {
    return rank_of(communicator, others_) + rank_of(member, own_);
  }

 private:
  struct Step {
    std::int64_t size = 1;
    std::int64_t stride = 1;  ///< ranks from one index to the next
  };
  using Steps = std::vector<Step>;  ///< outermost first

  static std::int64_t number_of(std::int64_t rank, const Steps& steps);
  static std::int64_t rank_of(std::int64_t number, const Steps& steps);

  Steps own_;     ///< of the axes that the communicators span
  Steps others_;  ///< of the other axes of their grid
  std::int64_t size_ = 1;
  std::int64_t count_ = 1;
};

}  // namespace mfsdp
