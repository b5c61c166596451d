// What gradient buffers hold, as sums of contributions that are told apart.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "verify/proof/layouts.hpp"

namespace mfsdp {

/// What one run of a kernel contributed, with coefficient 1: of this rank alone, or of every rank
/// of an axis. Summed over an axis n times, it counts (size of the axis)^(n - 1) times.
struct Term {
  std::uint32_t instance = 0;
  std::uint8_t shard_sums = 0;
  std::uint8_t outer_sums = 0;

  friend bool operator==(const Term&, const Term&) = default;
};

/// The value of one atom, or of its part in a slice; by symmetry the same on every rank. Without
/// terms it is zero. A term may be there twice.
struct Held {
  std::vector<Term> terms;
  bool garbage = false;  ///< what was there before anything wrote it
  bool uneven = false;   ///< summed over ranks that did not hold the same kind of thing
  bool scaled = false;   ///< multiplied by a device scalar on its way

  friend bool operator==(const Held&, const Held&) = default;
  /// Throws OverflowError where there are too many terms to keep.
  Held& operator+=(const Held& other);
};

/// Atoms of a buffer at one level.
struct Spot {
  std::uint32_t buffer = 0;
  std::uint32_t group = 0;
  int level = 0;
  AtomRange atoms;
};

/// What an operand touches, if that is a slice of its group or whole atoms.
[[nodiscard]] std::optional<Spot> spot_of(const Layouts& layouts, const Located& located);

/// Buffers of one group each, at first garbage. What a buffer holds in a slice is kept beside what
/// it holds elsewhere once the two differ.
class GradientMemory {
 public:
  explicit GradientMemory(const Layouts& layouts);

  void forget(std::uint32_t buffer);
  /// What holds at that level: the next coarser one's value where none of its own is kept.
  [[nodiscard]] const Held& at(std::uint32_t buffer, int level, std::uint32_t atom) const;
  /// Whether the part at that level has values of its own.
  [[nodiscard]] bool differs(std::uint32_t buffer, int level) const {
    return buffers_[buffer].kept[static_cast<std::size_t>(level)];
  }
  /// To overwrite or add to. Finer levels are the caller's: they stay as they are.
  [[nodiscard]] Held& edit(std::uint32_t buffer, int level, std::uint32_t atom);
  /// All finer levels hold what this one holds.
  void drop_finer(std::uint32_t buffer, int level);
  /// All atoms of a buffer's group.
  [[nodiscard]] AtomRange all(std::uint32_t buffer) const {
    return {.first = 0, .last = buffers_[buffer].atoms};
  }

 private:
  struct Contents {
    int base = 0;  ///< the level of the whole buffer
    std::uint32_t atoms = 0;
    std::array<std::vector<Held>, kLevels> layers;  ///< where not kept, memory for the next time
    std::array<bool, kLevels> kept{};
  };
  std::vector<Contents> buffers_;
};

}  // namespace mfsdp
