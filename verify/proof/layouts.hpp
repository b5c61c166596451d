// Which elements of which group an operand touches, and whether groups are laid out as they must.
//
// Elements of a group are counted from its start, the same on every rank. A buffer holds all of
// them, the rank's slice of dp_shard, or its part of that slice along dp_outer (HFSDP):
//
//   level 0   |----------------------- B -----------------------|   on every rank
//   level 1               |--- B/I ---|                             begins at shard * B/I
//   level 2                    |B/IO|                               ... + outer * B/(I O)
//
// A level that is no smaller than the one above, as on an axis of one rank, is that one.
//
// Whose elements a buffer holds follows from its category and unit: the n-th buffer of compute
// weights of a unit is that of its n-th group; main gradients, main weights and full gradients
// likewise, of its n-th trainable group; a gathered unit holds all its groups at their full_offset.
// Buffers of no unit, and all others, are not followed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/program_index.hpp"

namespace mfsdp {

inline constexpr int kLevels = 3;

/// Elements [begin + shard * shard_stride + outer * outer_stride, ... + count) of a group. Strides
/// along an axis of one rank are 0.
struct Region {
  std::int64_t begin = 0;
  std::int64_t shard_stride = 0;
  std::int64_t outer_stride = 0;
  std::int64_t count = 0;

  friend bool operator==(const Region&, const Region&) = default;
};

/// A parameter, or padding between two.
struct Atom {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const PlacedParameter* parameter = nullptr;  ///< null: padding
};

/// What the rank at an index of that axis has of a region that is cut evenly along it.
[[nodiscard]] Region part_of(const Region& whole, Axis axis, const Mesh& mesh);

struct GroupLayout {
  const Group* group = nullptr;
  std::string name;  ///< "layers.0", or "layers.0 (frozen)"
  bool sound = false;
  std::vector<Atom> atoms;  ///< all elements, ascending
  std::array<Region, kLevels> slices;

  /// The level whose slice that region is.
  [[nodiscard]] std::optional<int> level_of(const Region& region) const;
};

enum class Holds { other, weight, gradient, state };

/// What a buffer holds; groups are positions in Layouts::groups.
struct Home {
  Holds holds = Holds::other;
  std::vector<std::uint32_t> groups;
  int level = 0;
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
  /// Finds parameters that overlap or leave their group (MF501), groups that overlap in their
  /// unit's weights or share a parameter (MF502), and buffers that hold no slice of their group
  /// (MF503). What has a finding is not followed.
  Layouts(const Program& program, const ProgramIndex& index, FindingList& findings);

  std::vector<GroupLayout> groups;
  std::vector<Home> homes;  ///< by buffer

  [[nodiscard]] Holds holds(const Operand& operand) const {
    return homes[index_->buffers[operand.buffer]].holds;
  }
  /// Nothing where the operand's buffer is not followed.
  [[nodiscard]] std::optional<Located> locate(const Operand& operand) const;
  /// The atoms that a region on all ranks consists of, if it is whole ones.
  [[nodiscard]] std::optional<AtomRange> atoms_of(std::uint32_t group, const Region& region) const;

 private:
  void lay_out(const Group& group, FindingList& findings);
  void check_unit(std::span<const std::uint32_t> of_unit, FindingList& findings) const;
  void find_home(std::size_t buffer, std::span<const std::uint32_t> of_unit,
                 std::vector<std::array<std::uint32_t, 3>>& seen, FindingList& findings);

  const Program* program_;
  const ProgramIndex* index_;
};

/// A region in words: "64 elements from 0", "16 elements from 0 + 16 per dp_shard".
[[nodiscard]] std::string to_text(const Region& region);

}  // namespace mfsdp
