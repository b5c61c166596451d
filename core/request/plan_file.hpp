// The plans that --plan and --plan-out name.
#pragma once

#include <string>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"
#include "core/plan/job.hpp"
#include "core/plan/plan.hpp"
#include "core/request/talk.hpp"

namespace mfsdp {

/// Reads a plan and checks its configuration. A plan that was edited since its hash was stored is
/// noted; it is no error.
[[nodiscard]] Result<Program> load_plan(const std::string& path, const Talk& talk);

/// The same of one class of ranks or several, whatever they state: for proofs.
[[nodiscard]] Result<Job> load_job(const std::string& path, const Talk& talk);

/// Writes the plan where --plan-out was given.
[[nodiscard]] Result<void> write_plan(const CommonOptions& options, const Program& program);

}  // namespace mfsdp
