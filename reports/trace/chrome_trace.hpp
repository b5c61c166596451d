// A step as pictures: a Chrome trace for Perfetto, and the memory timeline as a table.
//
//   process  "<run>: <model> on <gpus> x <gpu>", or one a rank where launches of ranks are stored
//   |- track   compute         | F 1  | F 2  | B 2 | B 1 |      one complete event an op
//   |- track   all_gather   | AG 1 | AG 2 |
//   |            `-> F 1                                        an arrow from what is waited for
//   |- counter live bytes          one series a category
//   `- counter live bytes, total
//
// Perfetto requires nested slices on a track, and times that are not negative. Ops that run ahead
// of their step have times before it, so the trace begins with the first of them. The instants
// "step begins" and "step ends" and otherData.step_begin_ns give the position of the step.
#pragma once

#include <filesystem>
#include <span>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// Writes a step's ops and memory as Chrome-trace JSON, compressed if the path ends in ".gz". Times
/// are microseconds with three decimals, exact to the nanosecond. Every microbatch is there; those
/// whose times were not kept are marked "omitted". With `program`, the program of the run's plan,
/// ops have bytes and FLOPs, arrows lead from awaited ops, and memory covers every microbatch. `job`:
/// as trace_model().
/// Errors: an op that ends before it starts, two concurrent ops of one stream (a stream runs its
/// ops one by one), or a file that cannot be written; the target is then unchanged. Launches of
/// ranks whose clocks make them overlap get tracks of their own.
[[nodiscard]] Result<void> write_chrome_trace(const RunResult& result,
                                              const std::filesystem::path& path,
                                              const Program* program = nullptr,
                                              std::span<const Program> job = {});

/// Writes the memory timeline: a row for each point with `time_ns`, the bytes of each category and
/// their `total`. CSV if the path ends in ".csv" or ".csv.gz", else JSON of schema
/// mfsdp.memory/1: { schema, run_id, columns: [name...], rows: [[integer...]...] }.
[[nodiscard]] Result<void> write_memory_trace(const PredictedRun& result,
                                              const std::filesystem::path& path);

}  // namespace mfsdp
