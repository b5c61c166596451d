#include "sim/engines/engine_snapshot.hpp"

#include <algorithm>
#include <deque>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/engines/engine_memory.hpp"

namespace mfsdp {
namespace {

/// Highest device address, and the address range of an expandable segment. Viewers store addresses
/// as doubles, which are exact below 2^53.
constexpr std::int64_t kTop = std::int64_t{0x7fff} << 32;
constexpr std::int64_t kRange = std::int64_t{1} << 42;

}  // namespace

MemorySnapshot engine_snapshot(const EnginePlan& plan, const AllocatorSettings& settings,
                               const std::string& text, std::int64_t steps) {
  MemorySnapshot snapshot;
  snapshot.settings = text;
  // Each new segment is below all earlier ones, as in the allocator model.
  std::int64_t top = kTop;
  CachingAllocator allocator(settings, [&](std::int64_t size, std::int64_t) {
    return top -= settings.expandable_segments ? kRange : size;
  });
  allocator.watch([&](const MemoryEvent& event) { snapshot.events.push_back({.event = event}); });
  std::unordered_map<std::size_t, std::pair<std::int64_t, std::int64_t>> live;  // by slot
  std::deque<MemoryEvent> in_use;  // frees of memory that other streams still use, in order
  for (const HostAllocation& made : host_allocations(plan, steps)) {
    if (made.empties_cache) {
      allocator.release_cached();
      continue;
    }
    const std::string& name = plan.program.buffers[made.buffer.value].name;
    if (made.is_returned) {
      allocator.free(in_use.front().address);
      snapshot.events.push_back({.event = in_use.front(), .name = name});
      in_use.pop_front();
      continue;
    }
    MemoryEvent event{.action = made.is_free ? MemoryAction::free : MemoryAction::allocate,
                      .size = std::max<std::int64_t>(made.size, 1),
                      .stream = made.stream};
    if (made.is_free) {
      const auto found = live.find(made.slot);
      std::tie(event.address, event.size) = found->second;
      live.erase(found);
      if (made.in_use) {
        allocator.retire(event.address);
        in_use.push_back(event);
        continue;
      }
      allocator.free(event.address);
    } else {
      const auto address = allocator.allocate(event.size, made.stream);
      if (!address) {
        event.action = MemoryAction::out_of_memory;
        snapshot.events.push_back({.event = event, .name = name});
        break;
      }
      event.address = *address;
      live[made.slot] = {event.address, event.size};
    }
    snapshot.events.push_back({.event = event, .name = name});
  }
  snapshot.segments = allocator.segments();
  return snapshot;
}

}  // namespace mfsdp
