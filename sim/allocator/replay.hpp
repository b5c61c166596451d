// A recorded run's allocations through the caching allocator: what it reserves, and what it would
// reserve under other settings.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/memory_events.hpp"

namespace mfsdp {

/// An allocation that found no room.
struct OutOfMemory {
  std::int64_t event = 0;  ///< of the record
  std::int64_t size = 0;   ///< bytes asked for
  std::int64_t stream = 0;
};

struct MemoryReplay {
  AllocatorCounters counters;
  std::optional<OutOfMemory> out_of_memory;  ///< the replay ends there
  std::int64_t allocations = 0;
  std::int64_t same_address = 0;  ///< of these, as recorded
  /// It begins with what the record's allocator held then; else with blocks of its own, packed.
  bool is_restored = false;
  /// At the first event with the highest reserved bytes.
  std::int64_t peak_event = 0;
  std::int64_t allocated_at_peak = 0;
  std::vector<CachingAllocator::FreeBytes> free_at_peak{};
};

/// Under the record's own settings, whatever the limit, the replay begins with what the allocator
/// held when the record began (MemoryRecord::at_begin). Under others, or where that is not known,
/// the blocks that were there are allocated first, which is an estimate.
/// Segments lie where the record has them as long as it has segments of the same size and stream
/// left and their places are free. Frees of what the record does not allocate are passed over.
[[nodiscard]] MemoryReplay replay_memory(const MemoryRecord& record,
                                         const AllocatorSettings& settings);

}  // namespace mfsdp
