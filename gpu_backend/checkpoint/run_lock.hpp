// One run at a time saves to a folder: it holds a lock on the folder's file .lock from before its
// first step until its process ends.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"

namespace mfsdp {

inline constexpr std::string_view kLockName = ".lock";
inline constexpr std::chrono::milliseconds kLockPatience{300};

/// A lock of the system (flock) on an open file. The system releases it when the process ends in
/// any way, so that a job that is queued again after a kill can lock it. On NFS the server keeps it
/// for all hosts (version 4, or 3 with its lock manager; not with the mount options nolock and
/// local_lock). There the lock of a host that is gone is released after the server's lease, about
/// 90 s. The file has one line of JSON for processes that find it locked: host, process, start
/// time, and the run's name. The file stays when the run has ended.
class RunLock {
 public:
  /// Creates folder and file if necessary. `run`: the name of the run. If another process holds the
  /// lock, it tries again for `patience`: that process may be about to end. Errors, all
  /// Fault::environment: another run holds the lock, with the contents of its line; the folder
  /// cannot be created or written.
  [[nodiscard]] static Result<RunLock> take(const std::filesystem::path& folder,
                                            const std::string& run,
                                            std::chrono::milliseconds patience = kLockPatience);

  /// Why the lock is not held: the file system has no locks. Empty if it is held.
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  explicit RunLock(FileDescriptor file) : file_(std::move(file)) {}

  FileDescriptor file_;
  std::string missing_;
};

}  // namespace mfsdp
