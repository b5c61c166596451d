// Finds the earliest of many times.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace mfsdp {

/// A time that never comes.
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// A time for each of n items, as a tree of minima: an update takes log n.
class Timetable {
 public:
  /// All times are kNever.
  explicit Timetable(std::size_t n);

  void set(std::size_t i, std::int64_t time);
  [[nodiscard]] std::int64_t first() const { return tree_[1]; }
  /// The items with the earliest time, ascending; that time must not be kNever.
  void find_first(std::vector<std::uint32_t>& found) const;

 private:
  void find_first(std::size_t node, std::vector<std::uint32_t>& found) const;

  std::size_t leaves_;
  std::vector<std::int64_t> tree_;  // the children of node i are 2 i and 2 i + 1; the root is 1
};

}  // namespace mfsdp
