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

/// Saves the runs that the store does not have, all or none; one that it has as still running is
/// brought to where it stands in `runs`.
[[nodiscard]] Result<Copied> save_new(Store& store, std::span<const RunResult> runs);

/// Opens the store and has `fill` put runs into it. One that is new comes about beside the path and
/// is put there when it is whole: where that fails, nothing is left, and nobody finds half of it.
[[nodiscard]] Result<Copied> fill_store(const std::filesystem::path& path,
                                        const std::function<Result<Copied>(Store&)>& fill);

/// Copies whole runs with their marks, a few at a time, so that any number of them fits in memory.
[[nodiscard]] Result<Copied> copy_runs(Store& from, std::span<const StoredRun> runs, Store& to);

}  // namespace mfsdp
