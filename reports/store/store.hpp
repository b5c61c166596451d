// Where results are kept: one SQLite file, any number of processes writing to it at once.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "reports/store/run_query.hpp"
#include "reports/store/schema.hpp"

namespace mfsdp {

struct StoreOptions {
  bool create = true;                         ///< make the file if there is none
  bool for_reading = false;                   ///< a file that cannot be written will do
  std::chrono::milliseconds patience{30000};  ///< how long to wait for other writers
  /// The versions that this program knows. Only tests pass another list.
  std::span<const std::string_view> migrations = store_migrations();
};

/// A run's entry in a list.
struct StoredRun {
  std::int64_t id = 0;  ///< row, for Store::load
  std::string run_id;
  std::string name;
  std::string tool;
  std::string source;
  std::string model_name;
  std::string plan_hash;
  std::string gpu;
  std::int64_t gpus = 0;
  std::int64_t created_unix_ns = 0;
  std::string engine;
  std::string status;  ///< to_string(RunStatus)
  std::string commit;  ///< of the program that made it; empty: unknown
  // The members below are absent if they are unknown, as for imported runs.
  std::optional<std::string> strategy;
  std::optional<std::int64_t> micro_batch;
  std::optional<std::int64_t> seq_len;
  std::optional<std::int64_t> global_batch;
  std::optional<Nanos> median_step;
  std::optional<double> tokens_per_second_per_gpu;
  std::optional<double> mfu;
  std::optional<Bytes> peak;
  std::optional<bool> fits;
  std::vector<std::string> marks;  ///< "baseline", ...
};

[[nodiscard]] RunGroup group_of(const StoredRun& run);

/// The long lists of a run that are loaded.
struct LoadedParts {
  bool timeline = true;  ///< of ops and memory
  bool steps = true;     ///< and evaluations
  bool launches = true;
};

/// Suffixes that SQLite adds to a store's name for the files beside it; the store itself is first.
constexpr std::array<std::string_view, 4> kStoreFileEndings{"", "-wal", "-shm", "-journal"};

/// Whether there can be a store at that path: its folder takes files, and what is there is a file
/// that can be written. Looks and changes nothing.
[[nodiscard]] Result<void> check_store_path(const std::filesystem::path& path);

/// An open store. Use one per thread.
///
/// Faults of the environment: cannot be opened or written, locked for longer than `patience`, disk
/// full. Faults of the input: a file that is not a store, or of a newer version. Whatever fails,
/// the runs stored before are intact and nothing of the new one remains.
class Store {
 public:
  /// Opens or creates the file and brings it to the newest version that this program knows. A file
  /// that is opened for reading and cannot be written must be of that version.
  [[nodiscard]] static Result<Store> open(const std::filesystem::path& path,
                                          const StoreOptions& options = {});

  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();

  /// Stores the run in one transaction and returns its row. An error if its run_id is there
  /// already. Doubles that are not a number are stored as NULL.
  [[nodiscard]] Result<std::int64_t> save(const RunResult& result);

  /// The same for several runs, all or none, and returns their rows. Other processes wait for as
  /// long as this takes.
  [[nodiscard]] Result<std::vector<std::int64_t>> save_all(std::span<const RunResult> results);

  /// Adds steps and evaluations to a run that goes on. False, without a write, if another process
  /// has removed the run: its row may now be another run's.
  [[nodiscard]] Result<bool> append(std::int64_t id, const std::string& run_id,
                                    const RunProgress& progress);

  /// Writes a run that went on anew, but for its steps and evaluations, which are there already.
  /// False as above.
  [[nodiscard]] Result<bool> finish(std::int64_t id, const RunResult& result);

  /// The run of that row, as it was saved; lists that are not asked for are empty. Where the file
  /// is damaged the error names the run: others may be whole.
  [[nodiscard]] Result<RunResult> load(std::int64_t id, const LoadedParts& parts = {});

  /// The runs that the query asks for; all of them in the order in which they were saved.
  [[nodiscard]] Result<std::vector<StoredRun>> list(const RunQuery& query = {});

  /// Gives the run a mark, such as "baseline", and takes it from the other runs of its group.
  [[nodiscard]] Result<void> mark(std::int64_t id, const std::string& mark);

  /// Takes the mark from the run. False if the run had none.
  [[nodiscard]] Result<bool> unmark(std::int64_t id, const std::string& mark);

  /// Removes the runs of those rows in one transaction, and returns how many there were.
  [[nodiscard]] Result<std::int64_t> remove(std::span<const std::int64_t> ids);

  /// Moves what the log beside the file holds into the file, so that this can be moved alone.
  [[nodiscard]] Result<void> settle();

  /// Returns the space of removed runs to the file system. Other processes wait meanwhile.
  [[nodiscard]] Result<void> shrink();

  /// The schema version of the open file.
  [[nodiscard]] std::int64_t version() const;

 private:
  struct State;
  explicit Store(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace mfsdp
