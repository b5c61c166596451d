// How a tool follows a search: it shows the progress, stores the runs, and stops when interrupted.
#pragma once

#include <optional>
#include <vector>

#include "core/cli/progress.hpp"
#include "reports/session/run_store.hpp"
#include "reports/session/session.hpp"
#include "sim/search/candidates.hpp"

namespace mfsdp {

class SearchSession {
 public:
  /// Both must outlive this.
  SearchSession(const CommonOptions& options, const Session& session)
      : options_(options), session_(session), store_(options, session) {}

  /// For one search; they refer to this.
  [[nodiscard]] SearchHooks hooks();
  /// Stores the runs that wait for it. To be called when the search has ended.
  [[nodiscard]] Result<void> flush();

  [[nodiscard]] const RunStore& store() const { return store_; }

 private:
  Result<void> keep(PredictedRun& run);
  Result<void> store_waiting();
  void show(std::int64_t done, std::int64_t total);

  const CommonOptions& options_;
  const Session& session_;
  RunStore store_;
  std::optional<Progress> progress_;
  std::vector<RunResult> waiting_;  ///< stored in one transaction
};

}  // namespace mfsdp
