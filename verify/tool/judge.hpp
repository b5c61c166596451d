// What mfsdp-verify does with each kind of subject.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "core/cli/verify_options.hpp"
#include "reports/tool/session.hpp"

namespace mfsdp {

/// Judges the plan, the traces or the configurations that the options name, and prints what it
/// finds. `negative` where a finding is an error; notes are not.
[[nodiscard]] Result<ExitCode> judge(const VerifyOptions& options, const Session& session);

}  // namespace mfsdp
