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

/// The candidates that were most likely meant, at most `most` of them, best first: those that
/// `word` abbreviates, shortest first, then the others by edit distance; among equals in the order
/// given.
[[nodiscard]] std::vector<std::string> closest_names(std::string_view word,
                                                     const std::vector<std::string>& candidates,
                                                     std::size_t most);

/// The first of them. Empty without candidates.
[[nodiscard]] std::string closest_to(std::string_view word,
                                     const std::vector<std::string>& candidates);

}  // namespace mfsdp
