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

/// A lock of the system (flock) on an open file. The system releases it when the process ends,
/// however it ends, so that a job that is queued again after a kill gets in. On NFS the server
/// keeps it, for all hosts (version 4, or 3 with its lock manager; not with the mount options
/// nolock and local_lock): there the lock of a host that is gone is released after the server's
/// lease, about 90 s. The file has one line of JSON for those who find it locked: host, process,
/// since when, and the run's name. It stays when the run has ended.
class RunLock {
 public:
  /// Makes folder and file if need be. `run`: what the run is called. A lock that another process
  /// holds is tried for as long as `patience`: that process may be about to end. Errors, all of the
  /// environment: another run holds it, with what its line says; the folder cannot be made or
  /// written.
  [[nodiscard]] static Result<RunLock> take(const std::filesystem::path& folder,
                                            const std::string& run,
                                            std::chrono::milliseconds patience = kLockPatience);

  /// Why nothing is locked: the file system has no locks. Empty where the lock is held.
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  explicit RunLock(FileDescriptor file) : file_(std::move(file)) {}

  FileDescriptor file_;
  std::string missing_;
};

}  // namespace mfsdp
