// The elements of a group that an operand touches, and whether the layouts of groups are valid.
//
// Elements of a group are counted from its start, the same on every rank. A buffer holds all of
// them, or the rank's slice along the first axes of the group's `cut`; of dp_shard and dp_outer:
//
//   level 0   |----------------------- B -----------------------|   on every rank
//   level 1               |--- B/I ---|                             begins at dp_shard * B/I
//   level 2                    |B/IO|                               ... + dp_outer * B/(I O)
//
// The plan states which elements of which group a buffer holds (Buffer::holds). This is compared with
// the buffer's size and the group's placements. Buffers that hold no group are not followed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/program_index.hpp"

namespace mfsdp {

/// A group's slices nest at most this deep.
inline constexpr int kMostLevels = static_cast<int>(Names<Axis>::values.size()) + 1;

/// Elements [begin + sum over axes of the rank's index * stride, ... + count) of a group. Strides
/// along an axis of one rank are 0.
struct Region {
  std::int64_t begin = 0;
  PerAxis<std::int64_t> strides{};
  std::int64_t count = 0;

  /// The same elements on every rank.
  [[nodiscard]] bool is_on_all_ranks() const { return strides == PerAxis<std::int64_t>{}; }

  friend bool operator==(const Region&, const Region&) = default;
};

/// A parameter, or padding between two.
struct Atom {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const PlacedParameter* parameter = nullptr;  ///< null: padding
};

/// The given axes that have several ranks. With one rank nothing is cut, gathered or summed.
[[nodiscard]] std::vector<Axis> with_several_ranks(std::vector<Axis> axes, const Mesh& mesh);

/// The part of a rank, by its index on the axis, of a region that is cut evenly along it.
[[nodiscard]] Region part_of(const Region& whole, Axis axis, const Mesh& mesh);

/// The part of each rank in a region that a collective over some axes gathers or scatters: all of it
/// where there is one rank. Members of a communicator count in the order of ranks, whatever the
/// order of the axes in its list: the region is cut along the outermost axis of the mesh first.
[[nodiscard]] Region part_of(Region whole, std::vector<Axis> axes, const Mesh& mesh);

struct GroupLayout {
  const Group* group = nullptr;
  std::string name;  ///< "layers.0", or "layers.0 (frozen)"
  bool sound = false;
  std::vector<Atom> atoms;     ///< all elements, ascending
  std::vector<Region> slices;  ///< by level; at least the whole

  [[nodiscard]] int levels() const { return static_cast<int>(slices.size()); }
  /// The level whose slice that region is.
  [[nodiscard]] std::optional<int> level_of(const Region& region) const;
};

enum class Holds { other, weight, gradient, state, direction };

/// Contents of a buffer; groups are positions in Layouts::groups.
struct Home {
  Holds holds = Holds::other;
  bool casts = false;  ///< weights as casts to FP8, which each run of a plan makes anew
  std::vector<std::uint32_t> groups{};
  std::vector<std::int64_t> offsets{};  ///< of each group, bytes from the buffer's start
  int level = 0;
  std::int64_t block = 1;  ///< elements of a group that have one value in the buffer
  std::optional<Axis>
      distributed_over{};  ///< each rank on it has one of the groups, of equal layout
  /// The gradient is not summed over that axis yet: contributions of its ranks lie consecutively.
  std::optional<Axis> unsummed_over{};
};

/// Where an operand lies.
struct Located {
  std::uint32_t buffer = 0;
  std::uint32_t group = 0;
  Region region;
  /// Its elements are the region's: not so for another dtype than the buffer's, or with gaps.
  bool exact = false;
};

/// Atoms [first, last).
struct AtomRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

class Layouts {
 public:
  /// MF501: parameters that overlap or leave their group. MF502: groups that overlap in a buffer or
  /// share a parameter. MF503: buffers that do not hold the shard that their group states. MF303:
  /// groups whose gradients are not summed over all ranks with different tokens. Groups and buffers
  /// with a finding are not followed.
  Layouts(const Program& program, const ProgramIndex& index, FindingList& findings);

  std::vector<GroupLayout> groups;
  std::vector<Home> homes;  ///< by buffer
  int levels = 1;           ///< the most that any group has

  [[nodiscard]] Holds holds(const Operand& operand) const {
    return homes[index_->buffers[operand.buffer]].holds;
  }
  /// Nothing where the operand's buffer is not followed. Where each rank has a part, all of them
  /// lie where the slice does.
  [[nodiscard]] std::optional<Located> locate(const Operand& operand) const;
  /// The atoms that a region on all ranks consists of, if it is whole ones.
  [[nodiscard]] std::optional<AtomRange> atoms_of(std::uint32_t group, const Region& region) const;

 private:
  void lay_out(const Group& group, FindingList& findings);
  void check_unit(std::span<const std::uint32_t> of_unit, FindingList& findings) const;
  void find_home(std::size_t buffer, const IdIndex<GroupId>& positions, FindingList& findings);
  [[nodiscard]] std::string fault_of(const Buffer& buffer, const Home& home) const;
  [[nodiscard]] std::string fault_of_unsummed(const Buffer& buffer, const Home& home) const;
  [[nodiscard]] std::string fault_of_directions(const Buffer& buffer, const Home& home) const;
  void check_optimizers(FindingList& findings) const;

  const Program* program_;
  const ProgramIndex* index_;
};

/// Finds parameters, gradients and main parameters of other dtypes than the configured ones
/// (MF502). For programs that compute their configuration's model.
void check_configured_dtypes(const Program& program, FindingList& findings);

/// A region in words: "64 elements from 0", "16 elements from 0 + 16 per dp_shard".
[[nodiscard]] std::string to_text(const Region& region);

}  // namespace mfsdp
