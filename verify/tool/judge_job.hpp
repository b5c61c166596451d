// The judgement of a plan in which several classes of ranks run together.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "core/cli/verify_options.hpp"
#include "core/plan/job.hpp"
#include "reports/tool/session.hpp"

namespace mfsdp {

/// Proves the job and prints what was found. Certificates and mutants are for plans of one class:
/// the error names the flag that asks for them.
[[nodiscard]] Result<ExitCode> judge_job(const Job& job, const VerifyOptions& options,
                                         const Session& session);

}  // namespace mfsdp
