// Allocations and frees of a PyTorch memory snapshot, in their order.
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
  /// Number of leading events that stand for memory allocated before the record began, ordered by
  /// address. These are the blocks that the record frees, or that its final segments hold, without
  /// an allocation in the record.
  std::int64_t earlier = 0;
  /// The allocator's segments when the record began, by address; none if the snapshot's segments
  /// contradict its events.
  std::optional<std::vector<CachingAllocator::Segment>> at_begin;
  std::string contradiction;  ///< which one; empty where there is none
  /// Indices of events, all of them releases, by which torch.cuda.empty_cache() released segments.
  std::vector<std::size_t> emptied;
  AllocatorSettings settings;  ///< of the recorded process, without its limit
  std::string settings_text;   ///< as it was given to it
  Bytes peak_requested;        ///< largest sum of what was asked for
  Bytes peak_reserved;
  std::int64_t unknown_frees = 0;    ///< of what no event allocated
  std::int64_t unknown_actions = 0;  ///< as RecordedSnapshot has them
};

/// Reads a file of torch.cuda.memory._dump_snapshot(), for the device with the most events. Errors
/// name `where` and the place: errors of parse_memory_snapshot() and parse_allocator_settings(), a
/// snapshot without events, more than kMostSnapshotBytes at once, or more than 65,536 streams.
[[nodiscard]] Result<MemoryRecord> read_memory_events(std::string_view bytes,
                                                      const std::string& where);
/// The same for a snapshot that was already read.
[[nodiscard]] Result<MemoryRecord> memory_record(RecordedSnapshot snapshot,
                                                 const std::string& where);

}  // namespace mfsdp
