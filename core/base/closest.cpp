#include "core/base/closest.hpp"

#include <algorithm>
#include <compare>

#include "core/base/text.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t longest_word = 64;  // the distance takes quadratic time

/// Case and underscores make no difference.
std::string normalised(std::string_view word) {
  std::string out = lower_case(word.substr(0, longest_word));
  std::ranges::replace(out, '_', '-');
  return out;
}

}  // namespace

std::size_t edit_distance(std::string_view first, std::string_view second) {
  const std::string a = normalised(first);
  const std::string b = normalised(second);
  const std::size_t columns = b.size() + 1;
  // cost[i][j]: distance between the first i letters of a and the first j of b.
  std::vector<std::size_t> cost((a.size() + 1) * columns);
  const auto at = [&](std::size_t i, std::size_t j) -> std::size_t& {
    return cost[i * columns + j];
  };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = i;
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({replace, at(i - 1, j) + 1, at(i, j - 1) + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  return at(a.size(), b.size());
}

std::vector<std::string> closest_names(std::string_view word,
                                       const std::vector<std::string>& candidates,
                                       std::size_t most) {
  struct Ranked {
    bool other = false;  // the word does not abbreviate it
    std::size_t distance = 0;
    std::size_t position = 0;

    auto operator<=>(const Ranked&) const = default;
  };
  const std::string prefix = normalised(word);
  std::vector<Ranked> ranked;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    ranked.push_back({.other = !normalised(candidates[i]).starts_with(prefix),
                      .distance = edit_distance(word, candidates[i]),
                      .position = i});
  std::ranges::sort(ranked);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(most, ranked.size()); ++i)
    names.push_back(candidates[ranked[i].position]);
  return names;
}

std::string closest_to(std::string_view word, const std::vector<std::string>& candidates) {
  const std::vector<std::string> names = closest_names(word, candidates, 1);
  return names.empty() ? std::string() : names.front();
}

}  // namespace mfsdp
