// How far one number of a job can go - micro-batch, sequence length, GPUs - as asked, and with
// settings that save memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "sim/search/fit_search.hpp"
#include "sim/search/memory_settings.hpp"

namespace mfsdp {

enum class FitLimit {
  micro_batch,  ///< the largest that fits
  seq_len,      ///< the longest that fits
  gpus          ///< the fewest on which it fits
};

/// One search and its answer.
struct LimitRow {
  std::vector<Setting> settings;  ///< that save memory, in addition to what was asked
  Found found;
  RecomputePolicy recompute;       ///< with these settings
  Bytes capacity;                  ///< of the GPU
  Bytes reserve;                   ///< memory to keep free
  std::int64_t gpus_per_node = 0;  ///< of a search for GPUs: powers of two below it and whole nodes
  std::optional<PredictedRun> run;  ///< of the value found; none if nothing fits
};

/// A row for each of memory_variants(), as asked first. If a model cannot have all settings (tied
/// embeddings need two full gradients), the last ones are left out. A row that goes less far than
/// the row before is left out. The first row that fits has also tried more GPUs than the fewest, as
/// padding to whole shards can make some of these not fit. Errors: those of what was asked.
[[nodiscard]] Result<std::vector<LimitRow>> find_limit(const JobOptions& job, FitLimit limit,
                                                       PredictionRequests& requests,
                                                       const Watch& watch);

/// The position of the row with the fewest memory settings that fits, else of the last row.
[[nodiscard]] std::size_t answer_row(const std::vector<LimitRow>& rows);

/// A value of the number that is searched for.
[[nodiscard]] Setting limit_setting(FitLimit limit, std::int64_t value);

}  // namespace mfsdp
