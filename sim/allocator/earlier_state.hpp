// What the caching allocator held when a record began: worked back from what it held in the end.
#pragma once

#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/formats/memory_snapshot.hpp"
#include "sim/allocator/caching_allocator.hpp"

namespace mfsdp {

/// Undoes the events, the last one first, on the segments that there are in the end: segments with
/// their blocks before the first event. Free neighbours are one block, as the allocator keeps them.
/// A block that an event frees has the size that `settings` round its bytes to, and what is left
/// beside it where that is too small for a block of its own. The error names the first event, from
/// the end, that the segments contradict (they are of another time, or incomplete).
[[nodiscard]] Result<std::vector<CachingAllocator::Segment>> state_before(
    std::span<const MemoryEvent> events, std::span<const SnapshotSegment> segments,
    const AllocatorSettings& settings);

}  // namespace mfsdp
