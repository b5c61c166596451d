// Contents of gradient buffers, as sums of distinct contributions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "verify/proof/ledger/layouts.hpp"

namespace mfsdp {

/// How often something was summed over each axis, up to 7 times.
class AxisSums {
 public:
  [[nodiscard]] unsigned on(Axis axis) const { return bits_ >> shift(axis) & kMost; }
  void add(Axis axis) {
    if (on(axis) < kMost) bits_ += 1U << shift(axis);
  }
  friend bool operator==(const AxisSums&, const AxisSums&) = default;

 private:
  static constexpr unsigned kMost = 7;
  static constexpr unsigned kBits = 3;  ///< for each axis
  static_assert(kBits * Names<Axis>::values.size() <= 32);
  static constexpr unsigned shift(Axis axis) { return kBits * static_cast<unsigned>(axis); }

  std::uint32_t bits_ = 0;
};

/// The contribution of one run of a kernel, with coefficient 1: of this rank alone, or of every rank
/// of an axis. Summed over an axis n times, it counts (size of the axis)^(n - 1) times.
struct Term {
  std::uint32_t instance = 0;
  AxisSums sums{};

  friend bool operator==(const Term&, const Term&) = default;
};

/// The value of one atom, or of its part in a slice; by symmetry the same on every rank. Without
/// terms it is zero. A term may be there twice.
struct Held {
  std::vector<Term> terms;
  bool garbage = false;  ///< what was there before anything wrote it
  bool uneven = false;   ///< summed over ranks that did not hold the same kind of thing
  bool rounded = false;  ///< it was a sum of microbatches in a type narrower than main gradients'

  /// Rounding aside.
  friend bool operator==(const Held& a, const Held& b) {
    return a.terms == b.terms && a.garbage == b.garbage && a.uneven == b.uneven;
  }
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

/// The elements of an operand, if they are a shard of its group or whole atoms.
[[nodiscard]] std::optional<Spot> spot_of(const Layouts& layouts, const Located& located);

/// Buffers of one group each, at first garbage. The contents of a shard are kept separately from
/// it holds elsewhere once the two differ.
class GradientMemory {
 public:
  explicit GradientMemory(const Layouts& layouts);

  void forget(std::uint32_t buffer);
  /// The value at a level: that of the next coarser level where it has none of its own.
  [[nodiscard]] const Held& at(std::uint32_t buffer, int level, std::uint32_t atom) const;
  /// Whether the part at that level has values of its own.
  [[nodiscard]] bool differs(std::uint32_t buffer, int level) const {
    return buffers_[buffer].kept[static_cast<std::size_t>(level)];
  }
  /// To overwrite or add to. Finer levels are the caller's: they stay as they are.
  [[nodiscard]] Held& edit(std::uint32_t buffer, int level, std::uint32_t atom);
  /// All finer levels hold what this one holds.
  void drop_finer(std::uint32_t buffer, int level);
  /// The most that any group has.
  [[nodiscard]] int levels() const { return levels_; }
  /// All atoms of a buffer's group.
  [[nodiscard]] AtomRange all(std::uint32_t buffer) const {
    return {.first = 0, .last = buffers_[buffer].atoms};
  }

 private:
  struct Layers {
    int base = 0;  ///< the level of the whole buffer
    std::uint32_t atoms = 0;
    std::vector<std::vector<Held>> layers;  ///< where not kept, memory for the next time
    std::array<bool, kMostLevels> kept{};
  };
  std::vector<Layers> buffers_;
  int levels_;
};

}  // namespace mfsdp
