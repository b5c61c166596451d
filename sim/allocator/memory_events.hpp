// What a memory snapshot of PyTorch recorded: allocations and frees in their order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"
#include "core/formats/memory_snapshot.hpp"
#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/settings.hpp"

namespace mfsdp {

struct MemoryRecord {
  std::vector<MemoryEvent> events;
  /// So many of them, the first ones, stand for what was allocated before the record began, in the
  /// order of their addresses: what it frees, or what its segments hold in the end, and no event
  /// allocated.
  std::int64_t earlier = 0;
  /// What the allocator held when the record began, by address; none where the snapshot's segments
  /// contradict its events.
  std::optional<std::vector<CachingAllocator::Segment>> at_begin;
  std::string contradiction;  ///< which one; empty where there is none
  /// Events, all of them releases, with which torch.cuda.empty_cache() gives segments back.
  std::vector<std::size_t> emptied;
  AllocatorSettings settings;  ///< of the recorded process, without its limit
  std::string settings_text;   ///< as it was given to it
  Bytes peak_requested;        ///< largest sum of what was asked for
  Bytes peak_reserved;
  std::int64_t unknown_frees = 0;    ///< of what no event allocated
  std::int64_t unknown_actions = 0;  ///< as RecordedSnapshot has them
};

/// Of torch.cuda.memory._dump_snapshot(), of the device with most events. Errors name `where` and
/// the place: what parse_memory_snapshot() and parse_allocator_settings() refuse, a snapshot
/// without events, more than kMostSnapshotBytes at one time or 65,536 streams.
[[nodiscard]] Result<MemoryRecord> read_memory_events(std::string_view bytes,
                                                      const std::string& where);
/// The same of a snapshot that was read.
[[nodiscard]] Result<MemoryRecord> memory_record(RecordedSnapshot snapshot,
                                                 const std::string& where);

}  // namespace mfsdp
