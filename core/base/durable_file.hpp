// Files that are written at any place, and synced before anything relies on them.
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

/// Errors are faults of the environment and name the file as the user knows it: `shown`.
class DurableFile {
 public:
  /// `path` does not exist yet.
  [[nodiscard]] static Result<DurableFile> create(const std::filesystem::path& path,
                                                  std::string shown);
  /// Opens one that another rank has made.
  [[nodiscard]] static Result<DurableFile> open(const std::filesystem::path& path,
                                                std::string shown);

  /// Takes room for so many bytes, so that a full disk is met here.
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

/// "cannot be written: " and the reason that `error_number` stands for.
[[nodiscard]] tl::unexpected<Error> cannot_write(const std::string& shown, int error_number);

/// Makes the names in a folder durable.
[[nodiscard]] Result<void> sync_folder(const std::filesystem::path& folder);

}  // namespace mfsdp
