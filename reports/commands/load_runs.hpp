// Runs of a store of which one may be damaged: the others are worth having.
#pragma once

#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "reports/store/store.hpp"

namespace mfsdp {

struct LoadedRuns {
  std::vector<RunResult> runs = {};
  ExitCode code = ExitCode::good;  ///< another: some could not be read, which stderr reports
};

/// The runs that can be read. An error where none can, the first one's.
[[nodiscard]] Result<LoadedRuns> load_readable(Store& store, std::span<const StoredRun> found,
                                               const LoadedParts& parts, const Session& session);

}  // namespace mfsdp
