// How far one number goes - micro-batch, sequence length, GPUs - as asked, and with settings that
// save memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "sim/search/find.hpp"
#include "sim/tool/asker.hpp"
#include "sim/tool/sim_options.hpp"

namespace mfsdp {

/// One search and its end.
struct LimitRow {
  std::string flags;  ///< that save memory, beside what was asked; empty: none
  Found found;
  RecomputePolicy recompute;        ///< as it is with these flags
  Bytes capacity;                   ///< of the GPU
  Bytes reserve;                    ///< to be kept free
  std::optional<PredictedRun> run;  ///< of the value found; none: nothing fits
};

/// The rows of saving_variants() (sim/tool/savers.hpp), as asked first. Where a configuration can
/// not have all savers (tied embeddings need two full gradients), the last ones are left out. A row
/// that would go less far than the one before is left out: each goes at least as far. The first
/// that fits has also tried more GPUs than the fewest that fit, of which padding to whole shards
/// can make some not fit. Requires options.find, one of max-micro-batch, max-seq-len and min-gpus.
/// Errors: those of what was asked.
[[nodiscard]] Result<std::vector<LimitRow>> limit_rows(const SimOptions& options, Asker& asker,
                                                       const Watch& watch);

/// The position of the row with the fewest savers that fits, else of the last one.
[[nodiscard]] std::size_t shown_row(const std::vector<LimitRow>& rows);

/// The options with another value of the number that is looked for.
[[nodiscard]] SimOptions with_value(SimOptions options, std::int64_t value);

}  // namespace mfsdp
