// A training run on GPUs: this process is one rank of it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/error.hpp"
#include "core/cli/exec_options.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/result.hpp"
#include "gpu_backend/launch/launch_environment.hpp"
#include "gpu_backend/tool/rank_machine.hpp"

namespace mfsdp {

/// Whether this build has gpu_backend/cuda.
[[nodiscard]] bool has_cuda();

/// What a run on GPUs is made of. All of it outlives the run.
struct CudaRunInputs {
  const Program& program;
  const ExecOptions& options;
  const TrainSettings& settings;
  const RunResult& predicted;  ///< of this plan: how long a step may take
  const RankLaunch& launch;    ///< of a supervised rank
  std::function<bool()> stop;  ///< whether the run should end, asked before each run of a plan
};

/// Meets the other ranks, opens the GPU and joins the communicators. Errors: those of Rendezvous
/// and of CudaBackend; --fault and --delay-op as in fault_of.hpp.
[[nodiscard]] Result<std::unique_ptr<RankMachine>> make_cuda_run(const CudaRunInputs& inputs);

}  // namespace mfsdp
