// Where a run goes on: on the CPU in this process, on this process's GPU, or in processes that this
// one starts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "gpu_backend/launch/launch_environment.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// How this process was called.
struct CommandLine {
  std::vector<std::string> arguments;  ///< from the program's name on
  Environment environment;
};

/// What is said at the first signal to stop, by the process that the user has started.
inline constexpr std::string_view kStopping =
    "mfsdp-exec: stopping after this step (a second signal ends it at once)";

struct RunPlace {
  /// How this process came to its ranks; none where the run is on the CPU.
  std::optional<RankLaunch> launch;

  [[nodiscard]] bool starts_ranks() const { return launch && !launch->supervised; }
  /// Whether this process holds what one process of a run has to hold: the one that the user or a
  /// launcher has started for rank 0. Ranks end with it.
  [[nodiscard]] bool is_first() const {
    return !launch || (starts_ranks() && launch->place.rank == 0);
  }
};

/// Makes no CUDA call. `has_cuda`: whether the build can run on GPUs. `auto` is CUDA where it can
/// and enough GPUs are visible. Where nobody says how many ranks to start, --world-size does.
/// Errors: CUDA asked for without build or GPUs, as Fault::environment; a launch that does not
/// resolve.
[[nodiscard]] Result<RunPlace> find_run_place(const ExecOptions& options,
                                              const Environment& environment, bool has_cuda);

/// Without --world-size the run has as many ranks as were started.
void fit_world_size(const RunPlace& place, ExecOptions& options);

/// The plan's ranks are those that were started.
[[nodiscard]] Result<void> check_world_size(const RunPlace& place, std::int64_t ranks);

/// Starts ranks and waits for them; what they end with.
[[nodiscard]] Result<ExitCode> run_ranks(const RunPlace& place, const ExecOptions& options,
                                         const CommandLine& command, const Session& session);

}  // namespace mfsdp
