// What an engine's allocations take of a GPU, through PyTorch's caching allocator.
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

/// The numbers of a stream, as the allocator keeps it.
struct StreamMemory {
  std::string name;
  /// Where most is reserved of all streams; at least what it has allocated at another time.
  Bytes reserved;
  Bytes allocated;  ///< where it is most
};

struct EngineMemory {
  AllocatorCounters counters;
  std::optional<OutOfMemory> out_of_memory;  ///< where a limit is set: it ends there
  CategoryBytes at_peak{};                   ///< allocated, in whole blocks
  std::string peak_op;                       ///< what was to run next when most was allocated
  std::vector<StreamMemory> streams;         ///< of those that allocate
  /// Of all that is reserved and not allocated where most is reserved: whole segments, and parts of
  /// those in use.
  Bytes idle_segments;
  Bytes fragments;
  std::int64_t steps = 0;  ///< until reserved memory no longer grew, or the end
};

/// From an empty start: what is kept, and as many steps as it takes until reserved memory no longer
/// grows, three at least.
[[nodiscard]] EngineMemory engine_memory(const EnginePlan& plan, const AllocatorSettings& settings);

/// Allocations of one name, in all units, where most is allocated.
struct KindMemory {
  std::string name;  ///< without the unit
  std::int64_t count = 0;
  Bytes bytes;
};

/// Largest first. Blocks are counted as they are rounded.
[[nodiscard]] std::vector<KindMemory> live_at_peak(const EnginePlan& plan,
                                                   const AllocatorSettings& settings);

/// One allocation (`size` of its block's bytes asked for) or free, as the host makes it.
struct HostAllocation {
  bool is_free = false;
  bool empties_cache = false;  ///< neither: segments without a block in use are given back
  BufferId buffer;
  std::int64_t size = 0;    ///< bytes asked for
  std::int64_t stream = 0;  ///< of the allocator
};

/// In their order, those of `steps` steps from an empty start; kept ones first.
[[nodiscard]] std::vector<HostAllocation> host_allocations(const EnginePlan& plan,
                                                           std::int64_t steps);

}  // namespace mfsdp
