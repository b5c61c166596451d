// A process that starts ranks, makes no CUDA call itself, and leaves no rank running.
#pragma once

#include <chrono>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/launch/launch_environment.hpp"

namespace mfsdp {

struct SupervisorSettings {
  /// The program of the ranks: this one, with its own arguments.
  std::filesystem::path program = "/proc/self/exe";
  std::vector<std::string> arguments = {};  ///< argv, from argv[0]
  Environment environment = {};             ///< ranks receive it with the MFSDP_* of their place
  bool insecure = false;                    ///< ranks on several hosts need no secret
  /// Timeout of a rank's first report to its watchdog.
  std::chrono::milliseconds start_deadline = std::chrono::minutes(5);
  /// After the first failure: the time in which the other ranks end by themselves, notified by the
  /// rendezvous; then the time between SIGTERM and SIGKILL.
  std::chrono::milliseconds own_end = std::chrono::seconds(3);
  std::chrono::milliseconds term_end = std::chrono::seconds(5);
  /// The line that is printed at the first forwarded signal; empty for none.
  std::string_view stopping = {};
  /// Destination of the ranks' lines and the supervisor's messages. Never null.
  std::ostream* err = nullptr;
};

/// Starts the ranks of `launch` (places_to_start) and waits for all of them. The caller has one
/// thread.
///
/// - SIGINT, SIGTERM and SIGHUP are forwarded to every rank. Ranks have their own process groups,
///   so that Ctrl-C reaches them once.
/// - When a rank ends with a code other than 0 and 130, dies by a signal, or misses a deadline
///   (watchdog.hpp), all others end: by themselves, by SIGTERM, by SIGKILL, in about ten seconds.
///   Ranks also die with the supervisor.
/// - A rank's standard input is empty. With several ranks, rank 0's output is forwarded unchanged,
///   and lines of the others go to `err` with the prefix "[rank N] ". A single rank keeps the
///   supervisor's output.
///
/// Returns the exit code: the first failure's (a code above 3 or a signal takes precedence over
/// ranks that only report another's failure); 3 if a signal or a deadline ended that rank, with one
/// line that names rank and reason; 130 if ranks ended with it, or by a forwarded signal; else 0.
/// Errors: those of settle_secret; a rank does not start.
[[nodiscard]] Result<int> supervise(const RankLaunch& launch, const SupervisorSettings& settings);

}  // namespace mfsdp
