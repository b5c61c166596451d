// Which of many things happens first.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace mfsdp {

/// A time that never comes.
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// A time for each of n things, as a tree of minima: to set one takes log n.
class Timetable {
 public:
  /// All of them at kNever.
  explicit Timetable(std::size_t n);

  void set(std::size_t i, std::int64_t time);
  [[nodiscard]] std::int64_t first() const { return tree_[1]; }
  /// Those at the first time, ascending; that must not be kNever.
  void find_first(std::vector<std::uint32_t>& found) const;

 private:
  void find_first(std::size_t node, std::vector<std::uint32_t>& found) const;

  std::size_t leaves_;
  std::vector<std::int64_t> tree_;  // the children of node i are 2 i and 2 i + 1; the root is 1
};

}  // namespace mfsdp
