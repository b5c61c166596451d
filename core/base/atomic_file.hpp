// Files that are either complete or absent: written to a temporary file in the target's folder,
// synced, then renamed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// A file under construction. Only `commit` changes the target; without it the temporary file is
/// removed. Devices, pipes and the process's own descriptors (/dev/stdout, /dev/fd/3) cannot be
/// replaced and are written directly; a symbolic link is followed, not replaced.
/// Errors name the target. A directory or an empty path is a fault of the input, all others are
/// faults of the environment.
class AtomicFile {
 public:
  [[nodiscard]] static Result<AtomicFile> create(const std::filesystem::path& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  [[nodiscard]] Result<void> write(std::string_view bytes);
  /// Makes the content durable and renames it to the target. Call once, last.
  [[nodiscard]] Result<void> commit();

 private:
  AtomicFile() = default;
  [[nodiscard]] tl::unexpected<Error> failure(int error_number) const;

  std::string shown_;      ///< the path as the caller named it
  std::string target_;     ///< the path that commit() replaces
  std::string temporary_;  ///< the path that is written until then; empty when written directly
  int descriptor_ = -1;    // as in POSIX: negative is closed
};

/// Whether AtomicFile could write there now, to be asked before hours of work: creates the
/// temporary file and removes it. A device or pipe is not opened, as closing it would end its
/// reader's input.
[[nodiscard]] Result<void> check_can_be_written(const std::filesystem::path& path);

/// Writes a whole file; readers see either the old content or the new.
[[nodiscard]] Result<void> write_file_atomically(const std::filesystem::path& path,
                                                 std::string_view content);

}  // namespace mfsdp
