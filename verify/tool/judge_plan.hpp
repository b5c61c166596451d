// Proves a plan, writes or re-checks its certificate, or judges its mutants.
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

/// Returns `negative` if the plan is wrong, its certificate is refused, a mutant is neither found
/// nor certified, or the change of a field is not found.
[[nodiscard]] Result<ExitCode> judge_plan(const VerifyOptions& options, const Session& session,
                                          const Machines& machines);

/// The variables of --env by name.
[[nodiscard]] std::map<std::string, std::string, std::less<>> environment_of(
    const VerifyOptions& options);

}  // namespace mfsdp
