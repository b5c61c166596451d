// The plan of a run, and its prediction by mfsdp-sim.
#pragma once

#include <memory>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "reports/record/result.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// The plan that every tool computes from these flags, or the job of --plan. Errors: also features
/// of a model that no plan supports.
[[nodiscard]] Result<std::shared_ptr<const Job>> plan_run(const ExecOptions& options,
                                                          const Session& session);

/// The prediction of one step on --gpu. Its memory is the plan's, on any machine. The simulator does
/// not know pipelines yet: of these the result has names and configuration, and all other figures
/// are absent.
[[nodiscard]] Result<PredictedRun> predict_run(const std::shared_ptr<const Job>& job,
                                               const ExecOptions& options, const Session& session);

/// Whether a prediction has figures.
[[nodiscard]] bool is_predicted(const PredictedRun& run);

}  // namespace mfsdp
