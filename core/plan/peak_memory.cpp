#include "core/plan/peak_memory.hpp"

#include <algorithm>
#include <utility>

#include "core/plan/index.hpp"

namespace mfsdp {
namespace {

/// The bytes of the pool at its peak.
CategoryBytes fullest(const Program& program, const IdIndex<BufferId>& index,
                      const PoolLifetimes& pool) {
  struct Change {
    std::int64_t position;
    bool begins;  ///< ends come first at one position
    const Buffer* buffer;
  };
  std::vector<Change> changes;
  for (const BufferLifetimes& buffer : pool.buffers)
    for (const Lifetime& life : buffer.lifetimes) {
      const Buffer* what = &program.buffers[index[buffer.buffer]];
      changes.push_back({.position = life.begin, .begins = true, .buffer = what});
      changes.push_back({.position = life.end, .begins = false, .buffer = what});
    }
  std::ranges::stable_sort(
      changes, {}, [](const Change& change) { return std::pair(change.position, change.begins); });
  CategoryBytes most{};
  CategoryBytes live{};
  Bytes total;
  Bytes largest;
  for (const Change& change : changes) {
    const Bytes size = change.begins ? change.buffer->size : Bytes(0) - change.buffer->size;
    live.at(static_cast<std::size_t>(change.buffer->category)) += size;
    total += size;
    if (total <= largest) continue;
    largest = total;
    most = live;
  }
  return most;
}

}  // namespace

Bytes sum_of(const CategoryBytes& categories) {
  Bytes sum;
  for (const Bytes bytes : categories) sum += bytes;
  return sum;
}

CategoryBytes peak_memory(const Program& program, const std::vector<PoolLifetimes>& pools) {
  const IdIndex<BufferId> index(program.buffers);
  const IdIndex<PoolId> pool_index(program.pools);
  const auto on_device = [&](PoolId pool) {
    return program.pools[pool_index[pool]].space == MemorySpace::device;
  };
  CategoryBytes peak{};
  for (const Buffer& buffer : program.buffers)
    if (buffer.persistent && on_device(buffer.pool))
      peak.at(static_cast<std::size_t>(buffer.category)) += buffer.size;
  for (const PoolLifetimes& pool : pools) {
    if (!on_device(pool.pool)) continue;
    const CategoryBytes most = fullest(program, index, pool);
    for (std::size_t i = 0; i < most.size(); ++i) peak.at(i) += most.at(i);
  }
  return peak;
}

}  // namespace mfsdp
