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
#include <vector>

#include "core/base/error.hpp"
#include "core/formats/read_pickle.hpp"

namespace mfsdp {

enum class MemoryAction {
  allocate,       ///< requested bytes
  free,           ///< the block is free for its stream again
  segment,        ///< a segment, or a piece of one, was allocated on the device
  release,        ///< a segment, or a piece, was freed
  out_of_memory,  ///< a request of that size failed; has no address
};

struct MemoryEvent {
  MemoryAction action = MemoryAction::allocate;
  std::int64_t address = 0;
  std::int64_t size = 0;  ///< bytes
  std::int64_t stream = 0;
  bool is_piece = false;  ///< of an expandable segment
};

/// A segment at the time of the snapshot. Sizes in bytes.
struct SnapshotSegment {
  std::size_t device = 0;
  std::int64_t address = 0;
  std::int64_t size = 0;
  std::int64_t stream = 0;
  bool is_small = false;          ///< of the pool of small blocks
  bool is_expandable = false;     ///< a range of pieces that follow each other
  std::vector<MemoryEvent> live;  ///< blocks in use, as events of allocation
};

struct RecordedSnapshot {
  std::vector<SnapshotSegment> segments;
  /// Changes of memory on each device, in their order; empty without a recorded history
  /// (torch.cuda.memory._record_memory_history()).
  std::vector<std::vector<MemoryEvent>> traces;
  std::int64_t unknown_actions = 0;  ///< events that were left out, as their action is unknown
  std::string settings;              ///< PYTORCH_CUDA_ALLOC_CONF
};

inline constexpr std::int64_t kMostSnapshotBytes = std::int64_t{1} << 50;

/// Errors name `where` and the place: a file that is not a snapshot, members of a wrong type, sizes
/// above kMostSnapshotBytes, blocks larger than their segment, overlapping allocations, double
/// frees.
[[nodiscard]] Result<RecordedSnapshot> parse_memory_snapshot(const PickleValue& root,
                                                             const std::string& where);

}  // namespace mfsdp
