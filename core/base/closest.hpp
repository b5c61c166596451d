// "Did you mean ...?"
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp {

/// Edit distance: letters to insert, delete, replace or swap with a neighbour. Case, and "-"
/// against "_", make no difference.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// At most `most` candidates, the most likely first: those that `word` abbreviates, shortest first,
/// then the others by edit distance. Equal ones keep their order.
[[nodiscard]] std::vector<std::string> closest_names(std::string_view word,
                                                     const std::vector<std::string>& candidates,
                                                     std::size_t most);

/// The most likely candidate; empty without candidates.
[[nodiscard]] std::string closest_to(std::string_view word,
                                     const std::vector<std::string>& candidates);

}  // namespace mfsdp
