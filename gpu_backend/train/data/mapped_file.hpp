// A file whose bytes are read as memory.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// A regular file, mapped for reading until destruction.
class MappedFile {
 public:
  /// `expected` says what the file is for ("tokens of llm.c") where it is none or empty.
  /// Errors name the file and why it cannot be used.
  [[nodiscard]] static Result<MappedFile> open(const std::filesystem::path& path,
                                               std::string_view expected);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

  /// An error if the file has other content or another size than when it was opened: reading beyond
  /// a new end would kill the process (SIGBUS). Ask before each read; what happens between asking
  /// and reading is not caught, and of a file above 1 MiB that was written to in place, some pieces
  /// are looked at. A file that has a new date only is the same; one that was deleted or replaced
  /// is still read as it was.
  [[nodiscard]] Result<void> check_unchanged() const;

 private:
  MappedFile() = default;

  std::string name_;
  std::span<const std::byte> bytes_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  timespec modified_{};
  std::uint64_t digest_ = 0;  ///< of some pieces
};

}  // namespace mfsdp
