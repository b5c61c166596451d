#include "core/schedule/residency.hpp"

#include <algorithm>

namespace mfsdp::schedule {

std::vector<std::vector<std::size_t>> resident_units(const std::vector<std::size_t>& uses,
                                                     std::size_t prefetch, bool next_follows,
                                                     const std::vector<std::size_t>& kept) {
  const std::size_t end = next_follows ? 2 * uses.size() : uses.size();
  std::vector<std::vector<std::size_t>> resident;
  for (std::size_t j = 0; j <= uses.size(); ++j) {
    std::vector<std::size_t> units;
    for (std::size_t k = j; k < end && units.size() <= prefetch; ++k) {
      const std::size_t unit = uses[k % uses.size()];
      if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
    }
    const auto now = uses.begin() + static_cast<std::ptrdiff_t>(j);
    for (const std::size_t unit : kept) {
      const bool is_between = std::ranges::find(uses.begin(), now, unit) != now &&
                              std::ranges::find(now, uses.end(), unit) != uses.end();
      if (is_between && std::ranges::find(units, unit) == units.end()) units.push_back(unit);
    }
    resident.push_back(std::move(units));
  }
  return resident;
}

}  // namespace mfsdp::schedule
