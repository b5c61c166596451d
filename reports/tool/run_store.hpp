// Where runs are stored: --db, the default store, or nowhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"
#include "core/plan/result.hpp"
#include "reports/store/store.hpp"
#include "reports/tool/session.hpp"

namespace mfsdp {

/// Fills in who made the run, when, and an id of 128 random bits.
void sign(RunResult& run, const CommonOptions& options, const Session& session);

/// A default store that cannot be written is a warning, once, and nothing is stored from then on;
/// unless it is a file that must not be touched: another program's, or a newer version's.
class RunStore {
 public:
  RunStore(const CommonOptions& options, const Session& session)
      : options_(options), session_(session) {}

  /// Stores them all or none.
  [[nodiscard]] Result<void> save(std::span<const RunResult> runs);

  /// A run that goes on, stored as it goes: its head first, then its steps, then what it came to.
  [[nodiscard]] Result<void> begin(const RunResult& run);
  [[nodiscard]] Result<void> append(const RunProgress& progress);
  [[nodiscard]] Result<void> finish(const RunResult& run);

  /// "stored in FILE", or why not.
  [[nodiscard]] std::string note() const;

 private:
  [[nodiscard]] Result<void> attempt(std::string_view what,
                                     const std::function<Result<void>(Store&)>& work);

  const CommonOptions& options_;
  Session session_;
  std::optional<Store> store_;
  std::int64_t row_ = 0;  ///< of the run that goes on
  bool given_up_ = false;
};

}  // namespace mfsdp
