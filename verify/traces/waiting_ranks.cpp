#include "verify/traces/waiting_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <vector>

namespace mfsdp::traces {
namespace {

using Waits = std::map<std::int64_t, std::map<std::int64_t, std::string>>;

/// The shortest cycle from a rank back to itself; empty if there is none.
std::vector<std::int64_t> way_back(const Waits& waits, std::int64_t rank) {
  std::map<std::int64_t, std::int64_t> came_from;
  std::deque<std::int64_t> reached{rank};
  while (!reached.empty()) {
    const std::int64_t at = reached.front();
    reached.pop_front();
    const auto found = waits.find(at);
    if (found == waits.end()) continue;
    for (const auto& [next, group] : found->second) {
      if (next == rank) {
        std::vector<std::int64_t> way{rank};
        for (std::int64_t step = at; step != rank; step = came_from.at(step)) way.push_back(step);
        way.push_back(rank);
        std::ranges::reverse(way);
        return way;
      }
      if (came_from.try_emplace(next, at).second) reached.push_back(next);
    }
  }
  return {};
}

}  // namespace

std::optional<Finding> WaitingRanks::cycle() const {
  for (const auto& [rank, waits] : waits_) {
    const std::vector<std::int64_t> way = way_back(waits_, rank);
    if (way.empty()) continue;
    std::string text;
    for (std::size_t i = 1; i < way.size(); ++i)
      text += fmt::format("{}rank {} waits for rank {} in group {}", i == 1 ? "" : ", ", way[i - 1],
                          way[i], waits_.at(way[i - 1]).at(way[i]));
    return finding_without_ops("MF819", std::move(text));
  }
  return std::nullopt;
}

}  // namespace mfsdp::traces
