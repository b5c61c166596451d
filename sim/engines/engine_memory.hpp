// GPU memory of an engine's allocations, through PyTorch's caching allocator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/peak_memory.hpp"
#include "sim/allocator/caching_allocator.hpp"
#include "sim/allocator/replay.hpp"
#include "sim/engines/engine_plan.hpp"

namespace mfsdp {

/// Memory of a stream, as the allocator counts it.
struct StreamMemory {
  std::string name;
  /// Reserved bytes when the total of all streams peaks, but at least the stream's own peak of
  /// allocated bytes.
  Bytes reserved;
  Bytes allocated;  ///< peak
};

struct EngineMemory {
  AllocatorCounters counters;
  std::optional<OutOfMemory> out_of_memory;  ///< with a limit: the simulation ends there
  CategoryBytes at_peak{};                   ///< allocated, in whole blocks
  std::string peak_op;                       ///< next op at the peak of allocated memory
  std::vector<StreamMemory> streams;         ///< of those that allocate
  /// Reserved and not allocated bytes at the peak of reserved memory: entire segments, and free
  /// parts of segments in use.
  Bytes idle_segments;
  Bytes fragments;
  std::int64_t steps = 0;  ///< until reserved memory no longer grew, or the end
};

/// Starts without memory, makes the kept allocations, and runs steps until reserved memory no
/// longer grows, at least three.
[[nodiscard]] EngineMemory engine_memory(const EnginePlan& plan, const AllocatorSettings& settings);

/// Allocations of one name in all units, at the peak of allocated memory.
struct KindMemory {
  std::string name;  ///< without the unit
  std::int64_t count = 0;
  Bytes bytes;
};

/// Largest first. Sizes are those of blocks, rounded up.
[[nodiscard]] std::vector<KindMemory> live_at_peak(const EnginePlan& plan,
                                                   const AllocatorSettings& settings);

/// One allocation (`size`: bytes requested) or free, as the host issues it.
struct HostAllocation {
  bool is_free = false;
  bool in_use = false;         ///< a free of memory that other streams may still use
  bool is_returned = false;    ///< neither: such memory can be allocated again
  bool empties_cache = false;  ///< neither: unused segments are released
  BufferId buffer;
  std::size_t slot = 0;     ///< of the buffer's instance (core/plan/rotation.hpp)
  std::int64_t size = 0;    ///< bytes asked for
  std::int64_t stream = 0;  ///< of the allocator
};

/// The allocations of `steps` steps from an empty start, in order, after the kept ones.
[[nodiscard]] std::vector<HostAllocation> host_allocations(const EnginePlan& plan,
                                                           std::int64_t steps);

}  // namespace mfsdp
