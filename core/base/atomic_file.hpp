// Files that are either complete or not there: written beside the target, synced, then renamed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// A file under construction. Its target changes only in `commit`; without it nothing is left
/// behind. Devices, pipes and the process's own descriptors (/dev/stdout, /dev/fd/3) cannot be
/// replaced and are written directly; a symbolic link is followed, not replaced.
/// Errors name the target and are faults of the environment, except that a directory or an empty
/// path is a fault of the input.
class AtomicFile {
 public:
  [[nodiscard]] static Result<AtomicFile> create(const std::filesystem::path& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  [[nodiscard]] Result<void> write(std::string_view bytes);
  /// Makes the content durable and puts it in the target's place. Call once, last.
  [[nodiscard]] Result<void> commit();

 private:
  AtomicFile() = default;
  [[nodiscard]] tl::unexpected<Error> failure(int error_number) const;

  std::string shown_;      ///< the path as the caller named it
  std::string target_;     ///< where the content goes
  std::string temporary_;  ///< what is written now; empty when written directly
  int descriptor_ = -1;    // as POSIX has it: negative is closed
};

/// Whether AtomicFile could write there now, so that hours of work need not end in its error: what
/// it does first is done and undone. A device or pipe is not opened: who reads would see its end.
[[nodiscard]] Result<void> check_can_be_written(const std::filesystem::path& path);

/// Writes a whole file so that readers see the old content or the new, never a part.
[[nodiscard]] Result<void> write_file_atomically(const std::filesystem::path& path,
                                                 std::string_view content);

}  // namespace mfsdp
