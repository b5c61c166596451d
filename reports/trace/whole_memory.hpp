// Memory over all of a step. A record keeps memory for two instances of a repeated segment; the
// rest follows from the plan's buffers.
#pragma once

#include <vector>

#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"
#include "reports/trace/replay.hpp"

namespace mfsdp {

/// Live bytes by category from the buffers of device pools, a point for each time in [0, step) at
/// which they change. `runtime` is what the first of the stored points has. `replayed` is of all of
/// the step.
[[nodiscard]] std::vector<MemoryPoint> whole_memory(const Program& program, const Replay& replayed,
                                                    const std::vector<MemoryPoint>& stored,
                                                    Nanos step);

}  // namespace mfsdp
