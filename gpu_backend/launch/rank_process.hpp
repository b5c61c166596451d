// One rank as its supervisor sees it: a process with three pipes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"
#include "gpu_backend/launch/supervisor.hpp"

namespace mfsdp {

/// Output of a rank, passed on by whole lines behind a prefix.
class PrefixedLines {
 public:
  PrefixedLines() = default;
  explicit PrefixedLines(std::string prefix) : prefix_(std::move(prefix)) {}

  void add(std::span<const char> text, std::ostream& out);
  /// A last line without its end.
  void finish(std::ostream& out);

 private:
  std::string prefix_;
  std::string line_;
};

struct RankOutput {
  FileDescriptor pipe;  ///< none: the rank has the supervisor's own output
  PrefixedLines lines;

  /// Passes on what has come.
  void forward(std::ostream& out);
};

struct RankProcess {
  using Clock = std::chrono::steady_clock;

  RankPlace place;
  pid_t process = 0;  ///< 0: has ended
  RankOutput out;
  RankOutput err;
  FileDescriptor watchdog;
  std::optional<Clock::time_point> deadline;  ///< for its next report, or its end
  std::chrono::milliseconds patience{};       ///< that it promised
  bool is_ending = false;                     ///< the promise is to end

  /// Takes the reports that have come.
  void read_watchdog();
};

/// Starts one rank as a process group of its own. `launch` is the supervisor's with this rank's
/// place; `listener` is passed on if there is one. With `prefixed` its output comes by pipes.
/// Errors: what the system says.
[[nodiscard]] Result<RankProcess> start_rank(RankLaunch launch, const FileDescriptor& listener,
                                             bool prefixed, const SupervisorSettings& settings);

/// How a process ended.
struct RankEnd {
  int code = 0;    ///< if no signal
  int signal = 0;  ///< 0: none
};

/// The end of a rank's process, if it has come: all processes of its group are ended then too.
[[nodiscard]] std::optional<RankEnd> reap(RankProcess& rank);

}  // namespace mfsdp
