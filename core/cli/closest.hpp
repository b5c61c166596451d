// "Did you mean ...?"
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp {

/// Letters to insert, delete, replace or swap with a neighbour to turn one word into the other.
/// Case, and the difference between "-" and "_", count as nothing.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate that was most likely meant: the shortest one that `word` abbreviates, else the one
/// at the smallest edit distance; among equals the first. Empty without candidates.
[[nodiscard]] std::string closest_to(std::string_view word,
                                     const std::vector<std::string>& candidates);

}  // namespace mfsdp
