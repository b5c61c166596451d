// A training run on GPUs: this process is one rank of it. No CUDA here: who makes such runs stands
// in cuda/, and without_cuda/ stands for it in builds without the CUDA toolkit.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "gpu_backend/launch/launch_environment.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "gpu_backend/tool/rank_machine.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// What a run on GPUs is made of. All of it outlives the run.
struct CudaRunInputs {
  const Program& program;
  const ExecOptions& options;
  const TrainSettings& settings;
  const PredictedRun& predicted;  ///< of this plan: how long a step may take
  const RankLaunch& launch;       ///< of a supervised rank
  std::function<bool()> stop;     ///< whether the run should end, asked before each run of a plan
  /// Says how the run has failed, from any thread: before the host's thread may be held by a device
  /// that nothing frees.
  std::function<void(const Error&)> tell;
};

/// Meets the other ranks, opens the GPU and joins the communicators. Errors: those of Rendezvous
/// and of CudaBackend; --fault and --delay-op as in fault_of.hpp.
using MakeCudaRun = Result<std::unique_ptr<RankMachine>> (*)(const CudaRunInputs& inputs);

/// What makes runs on GPUs in this build; null in a build without the CUDA toolkit. For the main,
/// which hands it to train_run().
[[nodiscard]] MakeCudaRun find_cuda_run();

}  // namespace mfsdp
