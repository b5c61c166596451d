// Dispatches each kind of subject of mfsdp-verify to its judgement.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "verify/mutation/mutate_fields.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {

/// Judges the plan, the traces or the configurations that the options name, and prints the
/// findings. Returns `negative` if a finding is an error; notes are not. `machines` run the mutants
/// of --mutate-fields in which the proofs find nothing.
[[nodiscard]] Result<ExitCode> judge(const VerifyOptions& options, const Session& session,
                                     const Machines& machines);

}  // namespace mfsdp
