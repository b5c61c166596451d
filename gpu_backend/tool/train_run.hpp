// The main function of mfsdp-exec: plans, predicts, trains, and compares.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "gpu_backend/tool/cuda_run.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "gpu_backend/tool/run_place.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// Prints the plan's prediction for --gpu; trains nothing and stores nothing.
[[nodiscard]] Result<ExitCode> dry_run(const ExecOptions& options, const Session& session);

/// Ends the process with this code, without destructors.
using EndProcess = void (*)(ExitCode code);

/// Trains, or starts processes that do. Every step is stored when it ends. Returns `interrupted` if
/// the session was interrupted. `make_cuda_run`: null in a build without CUDA. `end_process`:
/// called after a rank on a GPU has failed and everything is printed and stored.
[[nodiscard]] Result<ExitCode> train_run(const ExecOptions& asked, const CommandLine& command,
                                         const Session& session, MakeCudaRun make_cuda_run,
                                         EndProcess end_process);

}  // namespace mfsdp
