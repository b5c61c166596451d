// The judgement of a plan in which several classes of ranks run together.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "core/plan/job.hpp"
#include "reports/session/session.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {

/// Writes the job to --plan-out if given, proves it and prints the findings. Every rank is checked,
/// with or without --expand. Certificates and mutants need plans of one class: else the error names
/// the flag.
[[nodiscard]] Result<ExitCode> judge_job(const Job& job, const VerifyOptions& options,
                                         const Session& session);

}  // namespace mfsdp
