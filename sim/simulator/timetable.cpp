#include "sim/simulator/timetable.hpp"

#include <algorithm>
#include <bit>

namespace mfsdp {

Timetable::Timetable(std::size_t n)
    : leaves_(std::bit_ceil(std::max<std::size_t>(n, 2))), tree_(2 * leaves_, kNever) {}

void Timetable::set(std::size_t i, std::int64_t time) {
  std::size_t node = leaves_ + i;
  tree_[node] = time;
  for (node /= 2; node > 0; node /= 2) {
    const std::int64_t first = std::min(tree_[2 * node], tree_[2 * node + 1]);
    if (tree_[node] == first) break;
    tree_[node] = first;
  }
}

void Timetable::find_first(std::vector<std::uint32_t>& found) const {
  found.clear();
  find_first(1, found);
}

void Timetable::find_first(std::size_t node, std::vector<std::uint32_t>& found) const {
  if (tree_[node] != tree_[1]) return;
  if (node >= leaves_) {
    found.push_back(static_cast<std::uint32_t>(node - leaves_));
    return;
  }
  find_first(2 * node, found);
  find_first(2 * node + 1, found);
}

}  // namespace mfsdp
