// An engine's predicted allocations as a memory snapshot of PyTorch.
#pragma once

#include "sim/allocator/memory_snapshot.hpp"
#include "sim/engines/engine_plan.hpp"

namespace mfsdp {

/// From an empty start, with addresses, as engine_memory() counts them. Where `settings` has a
/// limit that leaves no room, it ends there. `text`: the settings as they were given.
[[nodiscard]] MemorySnapshot engine_snapshot(const EnginePlan& plan,
                                             const AllocatorSettings& settings,
                                             const std::string& text, std::int64_t steps);

}  // namespace mfsdp
