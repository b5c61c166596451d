// Opening an SQLite file as a store, and what its failures mean. Internal to this folder.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "core/base/error.hpp"
#include "reports/store/store.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name is SQLiteCpp's
namespace SQLite {
class Database;
}

namespace mfsdp {

/// Whether a file can be a store, judged by folder, kind and permissions. Changes nothing.
[[nodiscard]] Result<void> check_database_path(const std::string& file);

/// An open file, checked to be a store and migrated.
[[nodiscard]] Result<std::shared_ptr<SQLite::Database>> open_database(
    const std::filesystem::path& path, const StoreOptions& options);

/// Runs `work`, again while other processes hold the file, until `patience` has passed. Exceptions
/// of SQLite become errors that name `file`.
[[nodiscard]] Result<void> guarded(const std::string& file, std::chrono::milliseconds patience,
                                   const std::function<Result<void>()>& work);

}  // namespace mfsdp
