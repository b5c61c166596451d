// What mfsdp-exec does: it plans, predicts, trains, and compares.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "gpu_backend/tool/cuda_run.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "gpu_backend/tool/run_place.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// Prints the plan's prediction for --gpu; runs and stores nothing.
[[nodiscard]] Result<ExitCode> dry_run(const ExecOptions& options, const Session& session);

/// Ends the process with this code, and takes nothing down.
using EndProcess = void (*)(ExitCode code);

/// Trains, or starts processes that do. Every step is stored as it ends; `interrupted` where the
/// session says so. `make_cuda_run`: null in a build that has no GPUs to run on. `end_process`:
/// called where a rank on a GPU has failed, all being said and stored.
[[nodiscard]] Result<ExitCode> train_run(const ExecOptions& asked, const CommandLine& command,
                                         const Session& session, MakeCudaRun make_cuda_run,
                                         EndProcess end_process);

}  // namespace mfsdp
