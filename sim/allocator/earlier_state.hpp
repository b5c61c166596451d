// The caching allocator's state at the beginning of a record, reconstructed from its final state.
#pragma once

#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/formats/memory_snapshot.hpp"
#include "sim/allocator/caching_allocator.hpp"

namespace mfsdp {

/// Undoes the events, the last one first, starting from the final segments. Returns the segments
/// with their blocks before the first event. Free neighbours are one block, as in the allocator. A
/// freed block gets the size to which `settings` round its bytes, plus a rest that is too small for
/// a block of its own. The error names the last event that contradicts the segments: they were
/// recorded at another time, or are incomplete.
[[nodiscard]] Result<std::vector<CachingAllocator::Segment>> state_before(
    std::span<const MemoryEvent> events, std::span<const SnapshotSegment> segments,
    const AllocatorSettings& settings);

}  // namespace mfsdp
