#include "reports/store/store.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <utility>

#include "reports/store/database.hpp"
#include "reports/store/list_runs.hpp"
#include "reports/store/run_rows.hpp"

namespace mfsdp {

struct Store::State {
  std::string file;  ///< as the user named it
  std::chrono::milliseconds patience{};
  std::int64_t version = 0;
  std::shared_ptr<SQLite::Database> database;
  std::unique_ptr<RunWriter> writer;  ///< none before the first save, and after a failed one

  /// Runs `work` against the database; its exceptions become errors.
  Result<void> run(const std::function<Result<void>()>& work) const {
    return guarded(file, patience, work);
  }

  /// Has `work` write in one transaction: all of it is stored or nothing.
  Result<void> write(const std::function<Result<void>(RunWriter&)>& work) {
    return run([&]() -> Result<void> {
      SQLite::Transaction transaction(*database, SQLite::TransactionBehavior::IMMEDIATE);
      // Kept for the next call only when all is well.
      auto kept = std::exchange(writer, nullptr);
      if (!kept) kept = std::make_unique<RunWriter>(*database);
      MFSDP_TRY(work(*kept));
      transaction.commit();
      writer = std::move(kept);
      return {};
    });
  }
};

Result<void> check_store_path(const std::filesystem::path& path) {
  return check_database_path(path.string());
}

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

Result<Store> Store::open(const std::filesystem::path& path, const StoreOptions& options) {
  MFSDP_LET(database, open_database(path, options));
  auto state = std::make_unique<State>();
  state->file = path.string();
  state->patience = options.patience;
  state->version = static_cast<std::int64_t>(options.migrations.size());
  state->database = std::move(database);
  return Store(std::move(state));
}

Result<std::int64_t> Store::save(const RunResult& result) {
  MFSDP_LET(rows, save_all({&result, 1}));
  return rows.front();
}

Result<std::vector<std::int64_t>> Store::save_all(std::span<const RunResult> results) {
  std::vector<std::int64_t> rows;
  MFSDP_TRY(state_->write([&](RunWriter& writer) -> Result<void> {
    rows.clear();
    for (const RunResult& result : results) {
      try {
        rows.push_back(writer.write(result));
      } catch (const OverflowError& error) {
        return fail(state_->file, fmt::format("run {}: {}", result.run_id, error.what()));
      } catch (const SQLite::Exception& error) {
        if (error.getExtendedErrorCode() != SQLITE_CONSTRAINT_UNIQUE) throw;
        return fail(state_->file, fmt::format("run {} is stored already", result.run_id));
      }
    }
    return {};
  }));
  return rows;
}

Result<bool> Store::append(std::int64_t id, const std::string& run_id,
                           const RunProgress& progress) {
  bool there = false;
  MFSDP_TRY(state_->write([&](RunWriter& writer) -> Result<void> {
    there = writer.append(id, run_id, progress);
    return {};
  }));
  return there;
}

Result<bool> Store::finish(std::int64_t id, const RunResult& result) {
  bool there = false;
  MFSDP_TRY(state_->write([&](RunWriter& writer) -> Result<void> {
    there = writer.rewrite(id, result);
    return {};
  }));
  return there;
}

Result<RunResult> Store::load(std::int64_t id, const LoadedParts& parts) {
  std::optional<Result<RunResult>> read;  // none: SQLite failed, and does not know of which run
  auto outcome = state_->run([&]() -> Result<void> {
    read.reset();
    SQLite::Transaction snapshot(*state_->database);  // all tables as of one moment
    read = read_run(*state_->database, id, parts, state_->file);
    return {};
  });
  if (outcome) return std::move(*read);
  Error& error = outcome.error();
  error.what = fmt::format("run {}: {}", id, error.what);
  return tl::unexpected<Error>(std::move(error));
}

Result<std::vector<StoredRun>> Store::list(const RunQuery& query) {
  std::vector<StoredRun> runs;
  MFSDP_TRY(state_->run([&]() -> Result<void> {
    SQLite::Transaction snapshot(*state_->database);
    runs = list_runs(*state_->database, query);
    return {};
  }));
  return runs;
}

Result<void> Store::mark(std::int64_t id, const std::string& mark) {
  return state_->write([&](RunWriter&) -> Result<void> {
    if (mark_run(*state_->database, id, mark)) return {};
    return fail(state_->file, fmt::format("no run {}", id));
  });
}

Result<bool> Store::unmark(std::int64_t id, const std::string& mark) {
  bool had = false;
  MFSDP_TRY(state_->write([&](RunWriter&) -> Result<void> {
    had = unmark_run(*state_->database, id, mark);
    return {};
  }));
  return had;
}

Result<std::int64_t> Store::remove(std::span<const std::int64_t> ids) {
  std::int64_t removed = 0;
  MFSDP_TRY(state_->write([&](RunWriter&) -> Result<void> {
    removed = 0;
    SQLite::Statement remove(*state_->database, "DELETE FROM run_rows WHERE id = ?");
    for (const std::int64_t id : ids) {
      remove.bind(1, id);
      removed += remove.exec();
      remove.reset();
    }
    return {};
  }));
  return removed;
}

Result<void> Store::settle() {
  return state_->run([&]() -> Result<void> {
    state_->database->exec("PRAGMA wal_checkpoint(TRUNCATE)");
    return {};
  });
}

Result<void> Store::shrink() {
  MFSDP_TRY(state_->run([&]() -> Result<void> {
    state_->writer.reset();  // its statements would be in the way
    state_->database->exec("VACUUM");
    return {};
  }));
  return settle();
}

std::int64_t Store::version() const { return state_->version; }

}  // namespace mfsdp
