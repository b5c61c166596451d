// A folder beside an export's target in which the export is written. It is on the same disk, so
// that a rename moves it into place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"

namespace mfsdp {

/// Removed with its contents on destruction, unless it is kept. During the lifetime of the object
/// the folder is locked, which distinguishes it from the leftover of a killed process.
class TemporaryFolder {
 public:
  /// `shown`: the target as the user named it. Errors: Fault::environment, the folder cannot be
  /// created.
  [[nodiscard]] static Result<TemporaryFolder> beside(const std::filesystem::path& target,
                                                      const std::filesystem::path& shown);

  /// Its name, equal on all ranks: `process` and `number` are those of the rank that made it.
  [[nodiscard]] static std::filesystem::path name(const std::filesystem::path& target,
                                                  std::int64_t process, std::int64_t number);

  TemporaryFolder(TemporaryFolder&& other) noexcept
      : path_(std::exchange(other.path_, {})),
        number_(other.number_),
        lock_(std::move(other.lock_)) {}
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::int64_t number() const { return number_; }
  void keep() { path_.clear(); }

 private:
  TemporaryFolder(std::filesystem::path path, std::int64_t number, FileDescriptor lock)
      : path_(std::move(path)), number_(number), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  std::int64_t number_;
  FileDescriptor lock_;  ///< none where the file system has no locks
};

/// Leftovers of killed exports to `target`.
struct ExportLeftovers {
  std::vector<std::filesystem::path> removed;
  /// Folders that are not removed: they hold files that no export writes, cannot be locked, or may
  /// be the earlier export that no new one has replaced.
  std::vector<std::filesystem::path> left;
};

/// Removes the folders that no process writes any more. Ignores an export that is being written.
[[nodiscard]] ExportLeftovers remove_export_leftovers(const std::filesystem::path& target);

}  // namespace mfsdp
