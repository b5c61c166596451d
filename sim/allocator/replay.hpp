// Replays a recorded run's allocations through the caching allocator: how much memory it reserves,
// with the recorded settings and with others.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/memory_events.hpp"

namespace mfsdp {

/// An allocation that did not fit.
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
  /// True if the replay began with the recorded state; false if it allocated the earlier blocks
  /// anew.
  bool is_restored = false;
  /// At the first event with the highest reserved bytes.
  std::int64_t peak_event = 0;
  std::int64_t allocated_at_peak = 0;
  std::vector<CachingAllocator::FreeBytes> free_at_peak{};
};

/// With the record's own settings, at any limit, the replay begins with the allocator's state when
/// the record began (MemoryRecord::at_begin). With other settings, or if that state is unknown, the
/// blocks that were live then are allocated first, which is an estimate.
/// Segments get their recorded addresses as long as the record has an unused segment of that size
/// and stream whose addresses are free. Frees of blocks that the record does not allocate are
/// ignored.
[[nodiscard]] MemoryReplay replay_memory(const MemoryRecord& record,
                                         const AllocatorSettings& settings);

}  // namespace mfsdp
