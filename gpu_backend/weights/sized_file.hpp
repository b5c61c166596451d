// A file whose size is known before its content, written at any place by several ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/base/error.hpp"

namespace mfsdp {

/// Errors are faults of the environment and name the file as the user knows it.
class SizedFile {
 public:
  /// Makes the file and takes room for all of it, so that a full disk is met here. `shown`: the
  /// name for errors.
  [[nodiscard]] static Result<SizedFile> create(const std::filesystem::path& path,
                                                std::string shown, std::int64_t size);
  /// Opens one that another rank has made.
  [[nodiscard]] static Result<SizedFile> open(const std::filesystem::path& path, std::string shown);

  SizedFile(SizedFile&& other) noexcept;
  SizedFile& operator=(SizedFile&& other) noexcept;
  SizedFile(const SizedFile&) = delete;
  SizedFile& operator=(const SizedFile&) = delete;
  ~SizedFile();

  [[nodiscard]] Result<void> write(std::int64_t offset, std::span<const std::byte> bytes);
  /// Makes what was written durable, and closes. Call once, last.
  [[nodiscard]] Result<void> close();

 private:
  SizedFile(int descriptor, std::string shown)
      : descriptor_(descriptor), shown_(std::move(shown)) {}
  [[nodiscard]] static Result<SizedFile> open(const std::filesystem::path& path, std::string shown,
                                              int flags);

  int descriptor_;  // as POSIX has it: negative is closed
  std::string shown_;
};

/// "cannot be written: " and the reason that errno holds, or `error_number`.
[[nodiscard]] tl::unexpected<Error> cannot_write(const std::string& shown, int error_number);

/// Makes the names in a folder durable.
[[nodiscard]] Result<void> sync_folder(const std::filesystem::path& folder);

}  // namespace mfsdp
