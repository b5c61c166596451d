// A step's memory as PyTorch's allocator would have recorded it, for pytorch.org/memory_viz.
//
//   segments        a pool each, with the blocks that are live at the end of the step; and one for
//                   what lies outside of pools (context, libraries, communicators)
//   device_traces   allocations and frees of the step's buffers in their order
//   mfsdp_origin    whose run it is (reports/record/origin.hpp); viewers pass it over
//
// A block's frame names its category and buffer: "activation:0:layers.0.qkv".
#pragma once

#include <filesystem>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// Writes the pickle of one device. `program`: of the run's plan, for pools and offsets.
/// Errors: a run without op times, or a file that cannot be written.
[[nodiscard]] Result<void> write_memory_snapshot(const RunResult& run, const Program& program,
                                                 const std::filesystem::path& path);

}  // namespace mfsdp
