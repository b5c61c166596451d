// Memory snapshots of PyTorch: torch.cuda.memory._dump_snapshot(), for memory_viz.
//
// The pickle is a dict (torch/cuda/memory.py, _snapshot()):
//   segments             list of {device, address, total_size, stream, segment_type: "small" |
//                        "large", is_expandable, blocks: list of {size, state:
//                        "active_allocated" | "active_pending_free" | "inactive", ...}, ...}
//   device_traces        a list for each device, of {action, addr, size, stream, time_us, ...}
//   allocator_settings   {PYTORCH_CUDA_ALLOC_CONF, ...}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/formats/read_pickle.hpp"

namespace mfsdp {

enum class MemoryAction {
  allocate,       ///< bytes as they were asked for
  free,           ///< as the block came back to its stream
  segment,        ///< the device gave a segment, or backed a piece of one
  release,        ///< a segment, or a piece, went back
  out_of_memory,  ///< so many bytes were asked for in vain; at no address
};

struct MemoryEvent {
  MemoryAction action = MemoryAction::allocate;
  std::int64_t address = 0;
  std::int64_t size = 0;  ///< bytes
  std::int64_t stream = 0;
  bool is_piece = false;  ///< of an expandable segment
};

/// As the snapshot was taken. Sizes in bytes.
struct SnapshotSegment {
  std::size_t device = 0;
  std::int64_t address = 0;
  std::int64_t size = 0;
  std::int64_t stream = 0;
  bool is_small = false;          ///< of the pool of small blocks
  bool is_expandable = false;     ///< a range of pieces that follow each other
  std::vector<MemoryEvent> live;  ///< blocks in use, as if they were allocated
};

struct RecordedSnapshot {
  std::vector<SnapshotSegment> segments;
  /// What changed memory, in its order, on each device; empty where nothing was recorded
  /// (torch.cuda.memory._record_memory_history()).
  std::vector<std::vector<MemoryEvent>> traces;
  std::int64_t unknown_actions = 0;  ///< events, left out, that this version does not know
  std::string settings;              ///< PYTORCH_CUDA_ALLOC_CONF
};

inline constexpr std::int64_t kMostSnapshotBytes = std::int64_t{1} << 50;

/// Errors name `where` and the place: what is no snapshot; members of another type; sizes above
/// kMostSnapshotBytes; blocks that are more than their segment; an allocation that overlaps another
/// one, and what is freed twice.
[[nodiscard]] Result<RecordedSnapshot> parse_memory_snapshot(const PickleValue& root,
                                                             const std::string& where);

}  // namespace mfsdp
