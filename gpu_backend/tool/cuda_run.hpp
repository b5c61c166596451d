// A training run on GPUs: this process is one rank of it. This header has no CUDA. The
// implementation is in cuda/; without_cuda/ replaces it in builds without the CUDA toolkit.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"
#include "gpu_backend/launch/launch_environment.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "gpu_backend/tool/rank_machine.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// Inputs of a run on GPUs. All of them outlive the run.
struct CudaRunInputs {
  const Job& job;  ///< the rank runs the program of its class
  const ExecOptions& options;
  const TrainSettings& settings;
  const PredictedRun& predicted;  ///< of this plan; its step time sets deadlines
  const RankLaunch& launch;       ///< of a supervised rank
  std::function<bool()> stop;     ///< whether the run should end; called before each run of a plan
  /// Reports why the run has failed. Called from any thread, before the host thread may be blocked
  /// by a device that no call can free.
  std::function<void(const Error&)> tell;
};

/// Connects to the other ranks, opens the GPU and joins the communicators. Errors: those of
/// Rendezvous and of CudaBackend; those of fault_of.hpp for --fault and --delay-op.
using MakeCudaRun = Result<std::unique_ptr<RankMachine>> (*)(const CudaRunInputs& inputs);

/// The function that makes runs on GPUs; null in a build without the CUDA toolkit. main() passes it
/// to train_run().
[[nodiscard]] MakeCudaRun find_cuda_run();

}  // namespace mfsdp
