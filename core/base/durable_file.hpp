// Files that are written at any offset and synced when they are complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"

namespace mfsdp {

/// Errors are faults of the environment and name the file by `shown`, the path that the user gave.
class DurableFile {
 public:
  /// Creates `path`, which must not exist.
  [[nodiscard]] static Result<DurableFile> create(const std::filesystem::path& path,
                                                  std::string shown);
  /// Opens a file that another rank has created.
  [[nodiscard]] static Result<DurableFile> open(const std::filesystem::path& path,
                                                std::string shown);

  /// Reserves the bytes on disk, so that a full disk is an error here and not in write().
  [[nodiscard]] Result<void> reserve(std::int64_t size);
  [[nodiscard]] Result<void> write(std::int64_t offset, std::span<const std::byte> bytes);
  /// Makes what was written durable, and closes. Call once, last.
  [[nodiscard]] Result<void> close();

 private:
  DurableFile(FileDescriptor descriptor, std::string shown)
      : descriptor_(std::move(descriptor)), shown_(std::move(shown)) {}
  [[nodiscard]] static Result<DurableFile> open(const std::filesystem::path& path,
                                                std::string shown, int flags);

  FileDescriptor descriptor_;
  std::string shown_;
};

/// "cannot be written: " and the system's text for `error_number`.
[[nodiscard]] tl::unexpected<Error> cannot_write(const std::string& shown, int error_number);

/// Syncs a folder, so that names of new files in it survive a crash.
[[nodiscard]] Result<void> sync_folder(const std::filesystem::path& folder);

}  // namespace mfsdp
