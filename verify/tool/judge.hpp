// What mfsdp-verify does with each kind of subject.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "verify/mutation/mutate_fields.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {

/// Judges the plan, the traces or the configurations that the options name, and prints what it
/// finds. `negative` where a finding is an error; notes are not. `machines` run what
/// --mutate-fields does not see through.
[[nodiscard]] Result<ExitCode> judge(const VerifyOptions& options, const Session& session,
                                     const Machines& machines);

}  // namespace mfsdp
