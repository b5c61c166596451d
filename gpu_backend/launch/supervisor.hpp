// A process that starts ranks, makes no CUDA call itself, and leaves none behind.
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
  /// What the ranks run: this program, with its own arguments.
  std::filesystem::path program = "/proc/self/exe";
  std::vector<std::string> arguments = {};  ///< from argv[0] on
  Environment environment = {};             ///< ranks get it with MFSDP_* of their place
  bool insecure = false;                    ///< ranks on several hosts need no secret
  /// For a rank's first report to its watchdog.
  std::chrono::milliseconds start_deadline = std::chrono::minutes(5);
  /// After the first failure: for the others to end by themselves, having heard of it in the
  /// rendezvous; then between SIGTERM and SIGKILL.
  std::chrono::milliseconds own_end = std::chrono::seconds(3);
  std::chrono::milliseconds term_end = std::chrono::seconds(5);
  /// The line that is said at the first signal that is passed on; empty for none.
  std::string_view stopping = {};
  /// Where lines of ranks go, and what the supervisor has to say. Never null.
  std::ostream* err = nullptr;
};

/// Starts the ranks that `launch` asks for (places_to_start) and waits for all of them. The caller
/// has one thread.
///
/// - SIGINT, SIGTERM and SIGHUP are passed on to every rank; ranks are process groups of their own,
///   so that Ctrl-C reaches them once.
/// - When a rank ends with another code than 0 or 130, dies by a signal, or breaks its promise
///   (watchdog.hpp), all others end: by themselves, by SIGTERM, by SIGKILL, in some ten seconds.
///   Ranks die with the supervisor too.
/// - A rank's standard input is empty. With several ranks, rank 0's output passes through; lines of
///   others come to `err` behind "[rank N] ". One rank alone keeps its output.
///
/// Returns the exit code: the first failure's (one that says more than 3 or dies by a signal goes
/// before those that complain of it); 3 where a signal or a deadline ended that rank, with
/// one line that names rank and reason; 130 where ranks ended so, or by a signal that was passed
/// on; else 0. Errors: those of settle_secret; a rank does not start.
[[nodiscard]] Result<int> supervise(const RankLaunch& launch, const SupervisorSettings& settings);

}  // namespace mfsdp
