// Who owned each byte of a pool last.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace mfsdp {

/// Runs of cells with one owner; cells lie between the begins and ends of the pool's buffers. A
/// claim looks at the runs it covers and makes them one, so that it takes time for what it
/// replaces, and a word for each 64 cells.
class PlaceMap {
 public:
  static constexpr std::uint32_t kFree = std::numeric_limits<std::uint32_t>::max();

  /// A map over the given number of cells, all free.
  explicit PlaceMap(std::size_t cells = 0)
      : owners_(cells, kFree), starts_((cells + 63) / 64 + 1, 0) {
    if (cells > 0) set(0);
  }

  /// Makes [begin, end) the claimer's; `visit` sees every owner that it had, each run once.
  void claim(std::uint32_t begin, std::uint32_t end, std::uint32_t claimer, auto visit) {
    std::uint32_t run = start_of(begin);
    std::uint32_t last_owner = kFree;
    while (run < end) {
      last_owner = owners_[run];
      if (last_owner != kFree) visit(last_owner);
      const std::uint32_t next = next_start(run + 1);
      if (next > end && end < owners_.size()) {
        owners_[end] = last_owner;
        set(end);
      }
      if (run > begin) clear(run);
      run = next;
    }
    owners_[begin] = claimer;
    set(begin);
  }

 private:
  void set(std::uint32_t cell) { starts_[cell / 64] |= std::uint64_t{1} << (cell % 64); }
  void clear(std::uint32_t cell) { starts_[cell / 64] &= ~(std::uint64_t{1} << (cell % 64)); }

  [[nodiscard]] std::uint32_t start_of(std::uint32_t cell) const {
    std::uint32_t word = cell / 64;
    std::uint64_t bits = starts_[word] & (~std::uint64_t{0} >> (63 - cell % 64));
    while (bits == 0) bits = starts_[--word];  // cell 0 always starts a run
    return word * 64 + 63 - static_cast<std::uint32_t>(__builtin_clzll(bits));
  }
  /// The first start at or after a cell, or the number of cells.
  [[nodiscard]] std::uint32_t next_start(std::uint32_t cell) const {
    const auto cells = static_cast<std::uint32_t>(owners_.size());
    std::uint32_t word = cell / 64;
    std::uint64_t bits = starts_[word] & (~std::uint64_t{0} << (cell % 64));
    while (bits == 0) {
      if (++word >= starts_.size()) return cells;
      bits = starts_[word];
    }
    return word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits));
  }

  std::vector<std::uint32_t> owners_;  ///< by cell; valid where a run starts
  std::vector<std::uint64_t> starts_;  ///< a bit for each cell, and a word of none
};

}  // namespace mfsdp
