#include "reports/commands/load_runs.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "reports/store/find_runs.hpp"

namespace mfsdp {

Result<LoadedRuns> load_readable(Store& store, std::span<const StoredRun> found,
                                 const LoadedParts& parts, const Session& session) {
  LoadedRuns loaded;
  std::optional<Error> first;
  for (const StoredRun& each : found) {
    auto run = store.load(each.id, parts);
    if (run) {
      loaded.runs.push_back(std::move(*run));
      continue;
    }
    if (!first) first = run.error();
    if (found.size() > 1)
      report_warning(session.err,
                     fmt::format("run {} is left out: {}", short_name(each), run.error().message()),
                     session.tool);
    loaded.code = exit_code_of(run.error());
  }
  if (loaded.runs.empty() && first) return tl::unexpected<Error>(std::move(*first));
  return loaded;
}

}  // namespace mfsdp
