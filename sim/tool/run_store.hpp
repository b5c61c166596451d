// Where runs are stored: --db, the default store, or nowhere.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"
#include "core/plan/result.hpp"
#include "reports/store/store.hpp"
#include "sim/tool/session.hpp"

namespace mfsdp {

/// Fills in who made the run, when, and an id of 128 random bits.
void sign(RunResult& run, const CommonOptions& options);

class RunStore {
 public:
  RunStore(const CommonOptions& options, const Session& session)
      : options_(options), session_(session) {}

  /// Stores them all or none. A default store that cannot be written is a warning, once, unless it
  /// is a file that must not be touched: another program's, or a newer version's.
  [[nodiscard]] Result<void> save(std::span<const RunResult> runs);

  /// "stored in FILE", or why not.
  [[nodiscard]] std::string note() const;

 private:
  Result<void> try_save(std::span<const RunResult> runs);

  const CommonOptions& options_;
  Session session_;
  std::optional<Store> store_;
  bool given_up_ = false;
};

}  // namespace mfsdp
