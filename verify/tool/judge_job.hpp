// The judgement of a plan in which several classes of ranks run together.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "core/plan/job.hpp"
#include "reports/session/session.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {

/// Writes the job where --plan-out was given, proves it and prints what was found; every rank is
/// looked at, with --expand or without. Certificates and mutants are for plans of one class:
/// the error names the flag that asks for them.
[[nodiscard]] Result<ExitCode> judge_job(const Job& job, const VerifyOptions& options,
                                         const Session& session);

}  // namespace mfsdp
