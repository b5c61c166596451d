// Runs of one store, or of none, put into another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "reports/store/store.hpp"

namespace mfsdp {

struct Copied {
  std::vector<std::int64_t> rows;         ///< in the store that they were put into
  std::vector<std::string> there_before;  ///< run_ids that it had already, as they are
};

/// Saves the runs that the store does not have, all or none. A run that is still running in the
/// store is updated from `runs`.
[[nodiscard]] Result<Copied> save_new(Store& store, std::span<const RunResult> runs);

/// Opens the store and calls `fill` to put runs into it. A new store is written beside the path and
/// moved there when it is complete. If that fails, nothing is left, and no half-written file is
/// seen.
[[nodiscard]] Result<Copied> fill_store(const std::filesystem::path& path,
                                        const std::function<Result<Copied>(Store&)>& fill);

/// Copies whole runs with their marks, a few at a time, so that any number of them fits in memory.
[[nodiscard]] Result<Copied> copy_runs(Store& from, std::span<const StoredRun> runs, Store& to);

}  // namespace mfsdp
