// One rank in its supervisor: a process with three pipes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"
#include "gpu_backend/launch/supervisor.hpp"

namespace mfsdp {

/// Forwards a rank's output line by line, each with a prefix.
class PrefixedLines {
 public:
  PrefixedLines() = default;
  explicit PrefixedLines(std::string prefix) : prefix_(std::move(prefix)) {}

  void add(std::span<const char> text, std::ostream& out);
  /// Writes a last line that has no newline.
  void finish(std::ostream& out);

 private:
  std::string prefix_;
  std::string line_;
};

struct RankOutput {
  FileDescriptor pipe;  ///< none: the rank uses the supervisor's output
  PrefixedLines lines;

  /// Forwards the available output.
  void forward(std::ostream& out);
};

struct RankProcess {
  using Clock = std::chrono::steady_clock;

  RankPlace place;
  pid_t process = 0;  ///< 0: has ended
  RankOutput out;
  RankOutput err;
  FileDescriptor watchdog;
  std::optional<Clock::time_point> deadline;  ///< for its next report or its end
  std::chrono::milliseconds patience{};       ///< time that it reported with `deadline`
  bool is_ending = false;                     ///< the deadline is for its end

  /// Reads the available reports.
  void read_watchdog();
};

/// Starts one rank in a new process group. `launch` is the supervisor's, with this rank's place.
/// The rank inherits `listener` if there is one. With `prefixed` its output is forwarded through
/// pipes. Errors: those of the system.
[[nodiscard]] Result<RankProcess> start_rank(RankLaunch launch, const FileDescriptor& listener,
                                             bool prefixed, const SupervisorSettings& settings);

/// How a process ended.
struct RankEnd {
  int code = 0;    ///< if it exited by itself
  int signal = 0;  ///< 0: none
};

/// The end of a rank's process, if it has ended. Then all processes of its group are killed too.
[[nodiscard]] std::optional<RankEnd> reap(RankProcess& rank);

}  // namespace mfsdp
