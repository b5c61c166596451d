// Offsets for every buffer of a program.
#pragma once

#include "core/base/error.hpp"
#include "core/memory/allocation_cache.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Places persistent buffers one after the other and transient ones by the configured allocator,
/// over the lifetimes of all plans; sets offsets, heights and lower bounds. `cache` may be null.
[[nodiscard]] Result<void> assign_memory(Program& program, AllocationCache* cache = nullptr);

}  // namespace mfsdp
