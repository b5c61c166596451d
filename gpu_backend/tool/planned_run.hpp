// The plan that a run follows, and what mfsdp-sim says of it.
#pragma once

#include <memory>

#include "core/base/error.hpp"
#include "core/cli/exec_options.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/result.hpp"
#include "reports/tool/session.hpp"

namespace mfsdp {

struct PlannedRun {
  std::shared_ptr<const Program> program;
  RunResult predicted;  ///< one step on --gpu; its memory is that of the plan, whoever runs it
};

/// Asks what mfsdp-sim asks under the same flags, so that the plan and its hash are the same.
[[nodiscard]] Result<PlannedRun> plan_run(const ExecOptions& options, const Session& session);

}  // namespace mfsdp
