// The plan of a run, and its prediction by mfsdp-sim.
#pragma once

#include <memory>
#include <string>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "reports/record/result.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// The plan of the flags, or the job of --plan.
struct PlannedRun {
  std::shared_ptr<const Job> job;
  std::string hash;  ///< of a job of --plan; else empty
};

/// The plan that every tool computes from these flags. Errors: also features of a model that no
/// plan supports.
[[nodiscard]] Result<PlannedRun> plan_run(const ExecOptions& options, const Session& session);

/// The prediction of one step on --gpu. Its memory is the plan's, on any machine.
[[nodiscard]] Result<PredictedRun> predict_run(const PlannedRun& planned,
                                               const ExecOptions& options, const Session& session);

}  // namespace mfsdp
