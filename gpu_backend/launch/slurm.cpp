#include "gpu_backend/launch/slurm.hpp"

#include <limits>

#include "gpu_backend/launch/variables.hpp"

namespace mfsdp {

std::optional<std::string> first_slurm_host(std::string_view hosts) {
  std::string host;
  while (!hosts.empty() && hosts.front() != ',') {
    if (hosts.front() == ']') return std::nullopt;
    if (hosts.front() != '[') {
      host += hosts.front();
      hosts.remove_prefix(1);
      continue;
    }
    const std::size_t close = hosts.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    const std::string_view range = hosts.substr(1, close - 1);
    const std::string_view first = range.substr(0, range.find_first_of(",-"));
    if (first.empty()) return std::nullopt;
    host += first;
    hosts.remove_prefix(close + 1);
  }
  if (host.empty()) return std::nullopt;
  return host;
}

std::optional<std::int64_t> slurm_tasks_on(std::string_view tasks_per_node, std::int64_t node) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  while (!tasks_per_node.empty()) {
    const std::size_t comma = tasks_per_node.find(',');
    std::string_view entry = tasks_per_node.substr(0, comma);
    tasks_per_node.remove_prefix(comma == std::string_view::npos ? tasks_per_node.size()
                                                                 : comma + 1);
    std::optional<std::int64_t> nodes = 1;
    if (const std::size_t times = entry.find("(x"); times != std::string_view::npos) {
      if (!entry.ends_with(')')) return std::nullopt;
      nodes = parse_number(entry.substr(times + 2, entry.size() - times - 3), 1, kMost);
      entry = entry.substr(0, times);
    }
    const auto tasks = parse_number(entry, 1, kMost);
    if (!tasks || !nodes) return std::nullopt;
    if (node < *nodes) return tasks;
    node -= *nodes;
  }
  return std::nullopt;
}

}  // namespace mfsdp
