// Where results are kept: one SQLite file, any number of processes writing to it at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "reports/store/schema.hpp"

namespace mfsdp {

struct StoreOptions {
  bool create = true;                         ///< make the file if there is none
  std::chrono::milliseconds patience{30000};  ///< how long to wait for other writers
  /// The versions that this program knows. Only tests pass another list.
  std::span<const std::string_view> migrations = store_migrations();
};

/// What a list of runs shows of each.
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
  Nanos step;
  Bytes peak;
  bool fits = false;
};

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
  /// Opens or creates the file and brings it to the newest version that this program knows.
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

  /// Adds steps and evaluations to a run that goes on.
  [[nodiscard]] Result<void> append(std::int64_t id, const RunProgress& progress);

  /// Writes a run that went on anew, but for its steps and evaluations, which are there already.
  [[nodiscard]] Result<void> finish(std::int64_t id, const RunResult& result);

  /// The run of that row, as it was saved.
  [[nodiscard]] Result<RunResult> load(std::int64_t id);

  /// All runs, in the order in which they were saved.
  [[nodiscard]] Result<std::vector<StoredRun>> list();

  /// The schema version of the open file.
  [[nodiscard]] std::int64_t version() const;

 private:
  struct State;
  explicit Store(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace mfsdp
