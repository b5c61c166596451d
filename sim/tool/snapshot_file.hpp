// A memory snapshot as torch.cuda.memory._dump_snapshot() writes it: for torch.cuda._memory_viz,
// pytorch.org/memory_viz, and --replay.
#pragma once

#include <string>

#include "sim/allocator/memory_snapshot.hpp"

namespace mfsdp {

/// The pickle. Where a block in use was allocated by one of the events, it has its name.
[[nodiscard]] std::string to_pickle(const MemorySnapshot& snapshot);

}  // namespace mfsdp
