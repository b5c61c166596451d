// A command of the user's shell, run to its end.
#pragma once

#include <atomic>
#include <string>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp {

struct ShellOutcome {
  int status = 0;        ///< exit status; 128 + signal where a signal ended it
  bool stopped = false;  ///< by an interrupt, with all that it had started
  std::string output;    ///< what it wrote to standard output
  Nanos wall;            ///< from start to end
};

/// Runs `command` with /bin/sh in a process group of its own. Its standard error is ours; its input
/// is empty. On an interrupt the group is asked to end (SIGTERM) and is killed two seconds later;
/// what has left the group (setsid) is not reached.
/// Errors: the shell cannot be started, more than 256 MiB of output.
[[nodiscard]] Result<ShellOutcome> run_shell(const std::string& command,
                                             const std::atomic<bool>& interrupted);

}  // namespace mfsdp
