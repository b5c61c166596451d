// The plan that a run follows, and what mfsdp-sim says of it.
#pragma once

#include <memory>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "reports/record/result.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

/// The plan that every tool makes of these flags. Errors: also what a model has and no plan
/// computes.
[[nodiscard]] Result<std::shared_ptr<const Program>> plan_run(const ExecOptions& options,
                                                              const Session& session);

/// One step of it on --gpu; its memory is that of the plan, whoever runs it.
[[nodiscard]] Result<PredictedRun> predict_run(const std::shared_ptr<const Program>& program,
                                               const ExecOptions& options, const Session& session);

}  // namespace mfsdp
