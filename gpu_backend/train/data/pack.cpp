#include "gpu_backend/train/data/pack.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <utility>

namespace mfsdp {

std::vector<std::vector<std::uint32_t>> pack(std::span<const std::int64_t> lengths,
                                             std::int64_t capacity) {
  std::vector<std::uint32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(
      order, [&](std::uint32_t a, std::uint32_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<std::uint32_t>> sequences;
  std::set<std::pair<std::int64_t, std::size_t>> room;  // what is free in which sequence
  for (const std::uint32_t piece : order) {
    const auto found = room.lower_bound({lengths[piece], 0});
    auto [free, sequence] = found == room.end() ? std::pair(capacity, sequences.size()) : *found;
    if (found == room.end()) {
      sequences.emplace_back();
    } else {
      room.erase(found);
    }
    sequences[sequence].push_back(piece);
    free -= lengths[piece];
    if (free > 0) room.emplace(free, sequence);
  }
  for (auto& sequence : sequences) std::ranges::sort(sequence);
  // In the order of what each begins with.
  std::ranges::sort(sequences, {}, [](const auto& sequence) { return sequence.front(); });
  return sequences;
}

}  // namespace mfsdp
