#include "sim/allocator/replay.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>

namespace mfsdp {
namespace {

/// Recorded addresses of segments, by size and stream, in order.
class RecordedPlaces {
 public:
  RecordedPlaces(const MemoryRecord& record, bool expandable) {
    // The first page of a range has its lowest address as long as no page was released before.
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> ranges;
    for (const MemoryEvent& event : record.events) {
      if (event.action != MemoryAction::segment || event.is_piece != expandable) continue;
      if (!expandable)
        places_[{event.size, event.stream}].push_back(event.address);
      else if (ranges.try_emplace({page_of(event.size), event.stream}, event.address).second)
        places_[{page_of(event.size), event.stream}].push_back(event.address);
    }
  }

  std::optional<std::int64_t> next(std::int64_t size, std::int64_t stream) {
    auto& left = places_[{size, stream}];
    if (left.empty()) return std::nullopt;
    const std::int64_t address = left.front();
    left.pop_front();
    return address;
  }

 private:
  /// Pages have 2 MiB in the small pool, and 20 MiB or more in the large pool.
  static std::int64_t page_of(std::int64_t size) {
    return size % (20 * AllocatorSettings::kMebibyte) == 0 ? 20 * AllocatorSettings::kMebibyte
                                                           : 2 * AllocatorSettings::kMebibyte;
  }

  std::map<std::pair<std::int64_t, std::int64_t>, std::deque<std::int64_t>> places_;
};

bool are_equal_but_for_the_limit(AllocatorSettings a, const AllocatorSettings& b) {
  a.limit = b.limit;
  return a == b;
}

}  // namespace

MemoryReplay replay_memory(const MemoryRecord& record, const AllocatorSettings& settings) {
  RecordedPlaces places(record, settings.expandable_segments);
  CachingAllocator allocator(
      settings, [&](std::int64_t size, std::int64_t stream) { return places.next(size, stream); });
  MemoryReplay replay;
  std::unordered_map<std::int64_t, std::int64_t> now_at;  // by recorded address
  std::size_t next_emptied = 0;
  std::size_t first = 0;
  if (record.at_begin && are_equal_but_for_the_limit(settings, record.settings)) {
    allocator.restore(*record.at_begin);
    first = static_cast<std::size_t>(record.earlier);
    for (std::size_t i = 0; i < first; ++i)
      now_at[record.events[i].address] = record.events[i].address;
    replay.is_restored = true;
    replay.allocated_at_peak = allocator.counters().allocated;
    replay.free_at_peak = allocator.free_bytes();
  }
  for (std::size_t i = first; i < record.events.size(); ++i) {
    const MemoryEvent& event = record.events[i];
    const std::int64_t own = static_cast<std::int64_t>(i) - record.earlier;  // in the record
    if (event.action == MemoryAction::free) {
      const auto found = now_at.find(event.address);
      if (found == now_at.end()) continue;
      allocator.free(found->second);
      now_at.erase(found);
    }
    if (next_emptied < record.emptied.size() && record.emptied[next_emptied] == i) {
      allocator.release_cached();
      ++next_emptied;
    }
    const bool failed = event.action == MemoryAction::out_of_memory;
    if (event.action != MemoryAction::allocate && !failed) continue;
    const std::int64_t before = allocator.counters().peak_reserved;
    const auto address = allocator.allocate(std::max<std::int64_t>(event.size, 1), event.stream);
    if (!address) {
      replay.out_of_memory = {
          .event = std::max<std::int64_t>(own, 0), .size = event.size, .stream = event.stream};
      break;
    }
    if (failed) {
      allocator.free(*address);  // this time it fits; the events of a failed allocation are unknown
      continue;
    }
    now_at[event.address] = *address;
    if (own >= 0) ++replay.allocations;
    if (own >= 0 && *address == event.address) ++replay.same_address;
    if (allocator.counters().peak_reserved == before) continue;
    replay.peak_event = std::max<std::int64_t>(own, 0);
    replay.allocated_at_peak = allocator.counters().allocated;
    replay.free_at_peak = allocator.free_bytes();
  }
  replay.counters = allocator.counters();
  return replay;
}

}  // namespace mfsdp
