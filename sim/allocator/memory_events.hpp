// What a memory snapshot of PyTorch recorded: allocations and frees in their order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"
#include "sim/allocator/settings.hpp"

namespace mfsdp {

enum class MemoryAction {
  allocate,  ///< bytes as they were asked for
  free,      ///< as the block came back to its stream
  segment,   ///< the device gave a segment, or backed a piece of one
  release,   ///< a segment, or a piece, went back
};

struct MemoryEvent {
  MemoryAction action = MemoryAction::allocate;
  std::int64_t address = 0;
  std::int64_t size = 0;  ///< bytes
  std::int64_t stream = 0;
  bool is_piece = false;  ///< of an expandable segment
};

struct MemoryRecord {
  std::vector<MemoryEvent> events;
  /// So many of them, the first ones, stand for what was allocated before the record began, in the
  /// order of their addresses: what it frees, or what its segments hold in the end, and no event
  /// allocated.
  std::int64_t earlier = 0;
  AllocatorSettings settings;  ///< of the recorded process, without its limit
  std::string settings_text;   ///< as it was given to it
  Bytes peak_requested;        ///< largest sum of what was asked for
  Bytes peak_reserved;
  std::int64_t unknown_frees = 0;  ///< of what no event allocated
};

/// Of torch.cuda.memory._dump_snapshot(), of the device with most events. Errors name `where` and
/// the place: what is no snapshot, one without a trace (torch.cuda.memory._record_memory_history()
/// was not called), events without address or size, more than
/// 2^50 bytes at one time or 65,536 streams, and settings that parse_allocator_settings()
/// refuses.
[[nodiscard]] Result<MemoryRecord> read_memory_events(std::string_view bytes,
                                                      const std::string& where);

}  // namespace mfsdp
