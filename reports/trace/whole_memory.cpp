#include "reports/trace/whole_memory.hpp"

#include <array>
#include <map>
#include <set>

namespace mfsdp {

std::vector<MemoryPoint> whole_memory(const Program& program, const Replay& replayed,
                                      const std::vector<MemoryPoint>& stored, Nanos step) {
  std::set<PoolId> device;
  for (const Pool& pool : program.pools)
    if (pool.space == MemorySpace::device) device.insert(pool.id);
  const auto index = [](const Buffer& buffer) { return static_cast<std::size_t>(buffer.category); };
  MemoryPoint now;
  constexpr auto kRuntime = static_cast<std::size_t>(Category::runtime);
  if (!stored.empty()) now.categories.at(kRuntime) = stored.front().categories.at(kRuntime);
  for (const Buffer& buffer : program.buffers)
    if (buffer.persistent && device.contains(buffer.pool))
      now.categories.at(index(buffer)) += buffer.size;
  std::map<Nanos, std::array<Bytes, Names<Category>::values.size()>> changes{{Nanos(0), {}}};
  for (const BufferSpan& span : replayed.buffers) {
    const Buffer& buffer = program.buffers[span.buffer];
    if (!device.contains(buffer.pool)) continue;
    changes[span.begin].at(index(buffer)) += buffer.size;
    changes[span.end].at(index(buffer)) -= buffer.size;
  }
  std::vector<MemoryPoint> points;
  for (const auto& [at, change] : changes) {
    if (at >= step) break;  // what lives on ends there only for this window
    now.at = at;
    for (std::size_t i = 0; i < change.size(); ++i) now.categories.at(i) += change.at(i);
    points.push_back(now);
  }
  return points;
}

}  // namespace mfsdp
