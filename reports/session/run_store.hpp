// Where runs are stored: --db, the default store, or nowhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"
#include "reports/record/result.hpp"
#include "reports/session/session.hpp"
#include "reports/store/store.hpp"

namespace mfsdp {

/// Fills in who made the run, when, and an id of 128 random bits.
void sign(RunHead& run, const CommonOptions& options, const Session& session);

/// The store is a by-product: its failures do not end work. Data that cannot be stored is reported
/// once on session.err. A file that must not be changed (another program's, a newer version's) is
/// an error before the work, and so is a mistake in --db.
class RunStore {
 public:
  RunStore(const CommonOptions& options, Session session)
      : options_(options), session_(std::move(session)) {}

  /// Stores them all or none. Where --db cannot take them, outcome() is an error from then on and
  /// nothing more is stored; the results are to be printed first.
  [[nodiscard]] Result<void> save(std::span<const RunResult> runs);

  /// Why --db lacks runs that were to be saved.
  [[nodiscard]] Result<void> outcome() const { return outcome_; }

  // A measured run is stored as it goes: its head first, then its steps, then its result. If the
  // disk is full or another process locks the store, the data waits in memory. Storing is tried
  // again later, and at the end.

  /// Errors: mistakes in --db, files that are no store of this version.
  [[nodiscard]] Result<void> begin(const MeasuredRun& run);
  void append(const RunProgress& progress);
  /// Reports data that is not stored. A run that was removed meanwhile stays removed.
  void finish(const MeasuredRun& run);

  /// "stored in FILE", or what is not.
  [[nodiscard]] std::string note() const;

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] Result<void> open(std::chrono::milliseconds patience);
  [[nodiscard]] bool is_foreign(const Error& error) const;
  [[nodiscard]] Result<void> write_waiting(std::chrono::milliseconds patience);
  [[nodiscard]] Result<void> write_end(const MeasuredRun& run);
  [[nodiscard]] std::string missing() const;
  void postpone(const Error& error, std::string_view what);
  void give_up_removed();
  void warn(const std::string& text);

  const CommonOptions& options_;
  Session session_;
  std::optional<Store> store_;
  bool given_up_ = false;
  std::size_t saved_runs_ = 0;
  Result<void> outcome_;

  // Members of the running run.
  std::optional<RunResult> head_;    ///< not stored yet
  std::optional<std::int64_t> row_;  ///< where it is stored
  std::string run_id_;
  bool removed_ = false;  ///< by another process, as mfsdp-report gc does
  RunProgress waiting_;   ///< not stored yet
  bool end_waits_ = false;
  bool timeline_waits_ = false;
  bool warned_ = false;
  std::chrono::seconds pause_{};  ///< before the next try; zero while all is well
  Clock::time_point next_try_;
};

}  // namespace mfsdp
