// An engine's predicted allocations as a memory snapshot of PyTorch.
#pragma once

#include "sim/allocator/memory_snapshot.hpp"
#include "sim/engines/engine_plan.hpp"

namespace mfsdp {

/// From an empty start, with addresses, as engine_memory() simulates it. With a limit in
/// `settings`, it ends at an allocation that does not fit. `text`: the settings as given by the
/// user.
[[nodiscard]] MemorySnapshot engine_snapshot(const EnginePlan& plan,
                                             const AllocatorSettings& settings,
                                             const std::string& text, std::int64_t steps);

}  // namespace mfsdp
