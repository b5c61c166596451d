// A folder that an export is written in, beside its target: on the same disk, so that a rename puts
// it in place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"

namespace mfsdp {

/// Goes with all that is in it unless it is kept. While the object lives the folder is locked: that
/// tells it from one that a killed process has left.
class TemporaryFolder {
 public:
  /// `shown`: the target as the user named it. Errors: Fault::environment, no folder can be made.
  [[nodiscard]] static Result<TemporaryFolder> beside(const std::filesystem::path& target,
                                                      const std::filesystem::path& shown);

  /// What all ranks call it: `process` and `number` are those of the rank that made it.
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

/// What killed exports to `target` have left beside it.
struct ExportLeftovers {
  std::vector<std::filesystem::path> removed;
  /// Not ours to remove: other files than an export's are in it, it cannot be locked, or it may be
  /// the earlier export, which nothing has taken the place of.
  std::vector<std::filesystem::path> left;
};

/// Removes what no process writes any more. An export that is being written is neither removed nor
/// named.
[[nodiscard]] ExportLeftovers remove_export_leftovers(const std::filesystem::path& target);

}  // namespace mfsdp
