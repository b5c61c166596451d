#include "reports/store/store.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <utility>

#include "reports/store/database.hpp"
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

Result<void> Store::append(std::int64_t id, const RunProgress& progress) {
  return state_->write([&](RunWriter& writer) -> Result<void> {
    writer.append(id, progress);
    return {};
  });
}

Result<void> Store::finish(std::int64_t id, const RunResult& result) {
  return state_->write([&](RunWriter& writer) -> Result<void> {
    if (writer.rewrite(id, result)) return {};
    return fail(state_->file, fmt::format("run {} is not there any more", id), Fault::environment);
  });
}

Result<RunResult> Store::load(std::int64_t id) {
  RunResult result;
  MFSDP_TRY(state_->run([&]() -> Result<void> {
    SQLite::Transaction snapshot(*state_->database);  // all tables as of one moment
    MFSDP_LET(read, read_run(*state_->database, id, state_->file));
    result = std::move(read);
    return {};
  }));
  return result;
}

Result<std::vector<StoredRun>> Store::list() {
  std::vector<StoredRun> runs;
  MFSDP_TRY(state_->run([&]() -> Result<void> {
    runs.clear();
    SQLite::Statement query(*state_->database,
                            "SELECT id, run_id, name, tool, source, model_name, plan_hash, gpu, "
                            "gpus, created_unix_ns, step_ns, peak_bytes, fits FROM runs "
                            "ORDER BY id");
    while (query.executeStep())
      runs.push_back({.id = query.getColumn(0).getInt64(),
                      .run_id = query.getColumn(1).getString(),
                      .name = query.getColumn(2).getString(),
                      .tool = query.getColumn(3).getString(),
                      .source = query.getColumn(4).getString(),
                      .model_name = query.getColumn(5).getString(),
                      .plan_hash = query.getColumn(6).getString(),
                      .gpu = query.getColumn(7).getString(),
                      .gpus = query.getColumn(8).getInt64(),
                      .created_unix_ns = query.getColumn(9).getInt64(),
                      .step = Nanos(query.getColumn(10).getInt64()),
                      .peak = Bytes(query.getColumn(11).getInt64()),
                      .fits = query.getColumn(12).getInt() != 0});
    return {};
  }));
  return runs;
}

std::int64_t Store::version() const { return state_->version; }

}  // namespace mfsdp
