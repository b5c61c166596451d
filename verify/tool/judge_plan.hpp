// A plan: proved, its certificate written or re-checked, its mutants judged.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "verify/mutation/mutate_fields.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {

/// `negative` where the plan is wrong, its certificate is refused or a mutant is neither found nor
/// certified, or a changed field passes that may not.
[[nodiscard]] Result<ExitCode> judge_plan(const VerifyOptions& options, const Session& session,
                                          const Machines& machines);

/// The variables of --env by name.
[[nodiscard]] std::map<std::string, std::string, std::less<>> environment_of(
    const VerifyOptions& options);

}  // namespace mfsdp
