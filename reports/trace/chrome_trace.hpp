// A step as pictures: a Chrome trace for Perfetto, and the memory timeline as a table.
//
//   process  "<run>: <model> on <gpus> x <gpu>"
//   |- track   compute         | F 1  | F 2  | B 2 | B 1 |      one complete event an op
//   |- track   all_gather   | AG 1 | AG 2 |
//   |- counter live bytes          one series a category
//   `- counter live bytes, total
#pragma once

#include <filesystem>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// Writes the timeline and the memory timeline as Chrome-trace JSON, compressed if the path ends in
/// ".gz". Times are microseconds with three decimals, exact to the nanosecond.
/// Errors: an op that ends before it starts, two ops of one stream at one time (a stream runs its
/// ops one by one), or a file that cannot be written; the target is then as it was.
[[nodiscard]] Result<void> write_chrome_trace(const RunResult& result,
                                              const std::filesystem::path& path);

/// Writes the memory timeline: a row for each point with `time_ns`, the bytes of each category and
/// their `total`. CSV if the path ends in ".csv" or ".csv.gz", else JSON of schema
/// mfsdp.memory/1: { schema, run_id, columns: [name...], rows: [[integer...]...] }.
[[nodiscard]] Result<void> write_memory_trace(const PredictedRun& result,
                                              const std::filesystem::path& path);

}  // namespace mfsdp
