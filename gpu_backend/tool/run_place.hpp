// Where a run takes place: on the CPU in this process, on this process's GPU, or in processes that
// this one starts.
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

/// The command line and environment of this process.
struct CommandLine {
  std::vector<std::string> arguments;  ///< from the program's name on
  Environment environment;
};

/// The message at the first signal to stop, printed by the process that the user has started.
inline constexpr std::string_view kStopping =
    "mfsdp-exec: stopping after this step (a second signal ends it at once)";

struct RunPlace {
  /// This process's ranks and their source; none if the run is on the CPU.
  std::optional<RankLaunch> launch;

  [[nodiscard]] bool starts_ranks() const { return launch && !launch->supervised; }
  /// Whether this process owns the resources that one process of a run must hold: it is the one
  /// that the user or a launcher has started for rank 0. Ranks end with it.
  [[nodiscard]] bool is_first() const {
    return !launch || (starts_ranks() && launch->place.rank == 0);
  }
};

/// Makes no CUDA call. `has_cuda`: whether the build can run on GPUs. `auto` is CUDA if the build
/// supports it and enough GPUs are visible. Without a number of ranks to start, --world-size
/// applies. Errors: CUDA was requested without a build or GPUs for it, as Fault::environment; a
/// launch that does not resolve.
[[nodiscard]] Result<RunPlace> find_run_place(const ExecOptions& options,
                                              const Environment& environment, bool has_cuda);

/// Without --world-size the run has as many ranks as were started.
void fit_world_size(const RunPlace& place, ExecOptions& options);

/// Errors: the plan has another number of ranks than were started.
[[nodiscard]] Result<void> check_world_size(const RunPlace& place, std::int64_t ranks);

/// Starts ranks and waits for them. Returns their exit code.
[[nodiscard]] Result<ExitCode> run_ranks(const RunPlace& place, const ExecOptions& options,
                                         const CommandLine& command, const Session& session);

}  // namespace mfsdp
