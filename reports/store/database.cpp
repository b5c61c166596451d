#include "reports/store/database.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

namespace mfsdp {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::int64_t scalar(SQLite::Database& database, const std::string& query) {
  return database.execAndGet(query).getInt64();
}

bool held_by_others(const SQLite::Exception& error) {
  const int code = error.getErrorCode();
  return code == SQLITE_BUSY || code == SQLITE_LOCKED || code == SQLITE_PROTOCOL;
}

bool is_full(const SQLite::Exception& error, int system_error) {
  if (error.getErrorCode() == SQLITE_FULL) return true;
  // Quotas and file size limits reach SQLite as plain write errors.
  return error.getErrorCode() == SQLITE_IOERR &&
         (system_error == ENOSPC || system_error == EDQUOT || system_error == EFBIG);
}

/// Why SQLite cannot open `file`, where that can be seen: it keeps the reason to itself.
std::optional<std::string> why_not_open(const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  const char* parent = folder.empty() ? "." : folder.c_str();
  struct stat status{};
  if (::stat(parent, &status) != 0)
    return fmt::format("folder {}: {}", parent, std::generic_category().message(errno));
  if (!S_ISDIR(status.st_mode)) return fmt::format("{} is not a folder", parent);
  const bool exists = ::stat(file.c_str(), &status) == 0;
  if (exists && ::access(file.c_str(), R_OK) != 0) return std::generic_category().message(errno);
  if (::access(parent, W_OK | X_OK) != 0)
    return fmt::format("folder {}: {}", parent, std::generic_category().message(errno));
  return std::nullopt;
}

constexpr std::string_view kCannotOpen = "cannot open the store: ";
constexpr std::string_view kReadOnly = "is read-only, cannot store results";

Error describe(const SQLite::Exception& error, int system_error, const std::string& file,
               milliseconds patience) {
  const auto environment = [&](std::string what) {
    return Error{.where = file, .what = std::move(what), .fault = Fault::environment};
  };
  if (is_full(error, system_error)) return environment("disk full or file size limit reached");
  if (held_by_others(error))
    return environment(
        fmt::format("locked by another process for more than {} ms", patience.count()));
  switch (error.getErrorCode()) {
    case SQLITE_NOTADB: return Error{file, "is not an mfsdp store (not an SQLite file)"};
    case SQLITE_READONLY: return environment(std::string(kReadOnly));
    case SQLITE_CANTOPEN:
      return environment(std::string(kCannotOpen) +
                         why_not_open(file).value_or("the system refused"));
    // Tables that are not there or contradict each other: the file's, as ours are made in one go.
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_CORRUPT: return Error{file, "is damaged: " + std::string(error.what())};
    default: break;
  }
  std::string what = std::string("cannot be read or written: ") + error.what();
  if (system_error != 0) what += " (" + std::generic_category().message(system_error) + ")";
  return environment(std::move(what));
}

/// Only files that SQLite may replace the content of. It would take "" for a temporary database.
Result<void> check_path(const std::string& file, bool create) {
  if (file.empty()) return fail("store", "expected a path, found an empty one");
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) {
    if (errno == ENOENT && !create) return fail(file, "no such store");
    return {};
  }
  if (S_ISDIR(status.st_mode)) return fail(file, "is a directory, expected an mfsdp store");
  if (!S_ISREG(status.st_mode)) return fail(file, "is not a regular file, cannot be a store");
  return {};
}

/// The store's version. Errors on the databases of other programs and on newer stores. Inside a
/// transaction: another process may be creating the store between two reads.
Result<std::int64_t> read_version(SQLite::Database& database, const std::string& file,
                                  std::int64_t newest) {
  const std::int64_t version = scalar(database, "PRAGMA user_version");
  if (scalar(database, "PRAGMA application_id") != kStoreApplicationId) {
    const bool empty = version == 0 && scalar(database, "SELECT count(*) FROM sqlite_schema") == 0;
    if (!empty) return fail(file, "is an SQLite database but not an mfsdp store");
  }
  if (version > newest)
    return fail(file, fmt::format("is a store of version {}, this program knows versions up to {}: "
                                  "use a newer mfsdp or another file",
                                  version, newest));
  return version;
}

/// Runs the missing entries in one transaction. Another process may have run them meanwhile.
Result<void> migrate(SQLite::Database& database, const std::string& file,
                     std::span<const std::string_view> migrations) {
  const auto newest = static_cast<std::int64_t>(migrations.size());
  SQLite::Transaction transaction(database, SQLite::TransactionBehavior::IMMEDIATE);
  MFSDP_LET(version, read_version(database, file, newest));
  for (std::int64_t next = version; next < newest; ++next) {
    database.exec(std::string(migrations[static_cast<std::size_t>(next)]));
    database.exec(
        fmt::format("INSERT INTO schema_versions (version, migrated_unix_ns) "
                    "VALUES ({}, unixepoch() * 1000000000)",
                    next + 1));
  }
  database.exec(fmt::format("PRAGMA application_id = {}", kStoreApplicationId));
  database.exec(fmt::format("PRAGMA user_version = {}", newest));
  transaction.commit();
  return {};
}

Result<void> prepare(SQLite::Database& database, const std::string& file,
                     const StoreOptions& options) {
  const std::span<const std::string_view> migrations = options.migrations;
  const auto newest = static_cast<std::int64_t>(migrations.size());
  SQLite::Transaction snapshot(database, SQLite::TransactionBehavior::DEFERRED);
  MFSDP_LET(version, read_version(database, file, newest));
  snapshot.commit();
  if (version == 0 && options.for_reading && !options.create)
    return fail(file, "is empty, expected an mfsdp store");  // and stays as it is
  const bool only_read = sqlite3_db_readonly(database.getHandle(), "main") == 1;
  if (only_read && options.for_reading && version == newest) return {};
  if (only_read && options.for_reading && version > 0)
    return fail(file,
                fmt::format("is read-only and a store of version {}: copy it to where it can be "
                            "written, so that it can be brought to version {}",
                            version, newest),
                Fault::environment);
  if (only_read) return fail(file, std::string(kReadOnly), Fault::environment);
  // In WAL mode readers never block the writer, and NORMAL can lose the last runs in a power cut
  // but never damages the file.
  database.exec("PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL");
  if (version == newest) return {};
  database.tryExec("PRAGMA foreign_keys = OFF");  // entries may rebuild tables
  database.exec("PRAGMA journal_mode = WAL");     // stays in the file; not inside a transaction
  MFSDP_TRY(migrate(database, file, migrations));
  database.exec("PRAGMA foreign_keys = ON");
  return {};
}

/// How SQLite is to open a file, and by which name.
struct Opening {
  std::string name;
  int flags = 0;
};

/// A URI for SQLite, whose characters mean themselves.
std::string uri_of(const std::string& name) {
  std::string uri = "file:";
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '/' || c == '.' || c == '_' || c == '-';
    uri += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return uri;
}

Opening opening_of(const std::filesystem::path& path, const StoreOptions& options) {
  const std::string file = path.string();
  // A relative path gets a "./", as SQLite has meanings of its own for ":memory:" and "file:...".
  Opening opening{.name = path.is_absolute() ? file : "./" + file,
                  .flags = SQLite::OPEN_READWRITE | SQLite::OPEN_NOMUTEX |  // one thread a store
                           (options.create ? SQLite::OPEN_CREATE : 0)};
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const bool writable =
      ::access(file.c_str(), W_OK) == 0 && ::access(folder.c_str(), W_OK | X_OK) == 0;
  if (!options.for_reading || writable || ::access(file.c_str(), R_OK) != 0) return opening;
  opening.flags = SQLite::OPEN_READONLY | SQLite::OPEN_NOMUTEX;
  // Readers of a write-ahead log need files beside it, which cannot be made here. Without a log
  // everything is in the file.
  if (::access((file + "-wal").c_str(), F_OK) == 0) return opening;
  opening.name = uri_of(opening.name) + "?immutable=1";
  opening.flags |= SQLite::OPEN_URI;
  return opening;
}

}  // namespace

Result<void> check_database_path(const std::string& file) {
  MFSDP_TRY(check_path(file, true));
  if (const auto reason = why_not_open(file))
    return fail(file, std::string(kCannotOpen) + *reason, Fault::environment);
  const bool exists = ::access(file.c_str(), F_OK) == 0;
  if (exists && ::access(file.c_str(), W_OK) != 0)
    return fail(file, std::string(kReadOnly), Fault::environment);
  return {};
}

Result<void> guarded(const std::string& file, milliseconds patience,
                     const std::function<Result<void>()>& work) {
  constexpr milliseconds longest_pause{50};
  const auto deadline = steady_clock::now() + patience;
  // SQLite's own busy timeout does not cover switching to WAL and recovery after a crash.
  for (milliseconds pause{1};; pause = std::min(2 * pause, longest_pause)) {
    try {
      errno = 0;  // sqlite3_system_errno() does not know of failed writes, errno does
      return work();
    } catch (const SQLite::Exception& error) {
      const int system_error = errno;
      if (!held_by_others(error) || steady_clock::now() >= deadline)
        return tl::unexpected<Error>(describe(error, system_error, file, patience));
    }
    std::this_thread::sleep_for(pause);
  }
}

Result<std::shared_ptr<SQLite::Database>> open_database(const std::filesystem::path& path,
                                                        const StoreOptions& options) {
  const std::string file = path.string();
  MFSDP_TRY(check_path(file, options.create));
  const Opening opening = opening_of(path, options);
  std::shared_ptr<SQLite::Database> database;
  MFSDP_TRY(guarded(file, options.patience, [&]() -> Result<void> {
    database.reset();
    database = std::make_shared<SQLite::Database>(opening.name, opening.flags,
                                                  static_cast<int>(options.patience.count()));
    return prepare(*database, file, options);
  }));
  return database;
}

}  // namespace mfsdp
