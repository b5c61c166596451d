// One configuration: predicted, stored, printed, explained, held against a budget.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "core/cli/sim_options.hpp"
#include "reports/tool/session.hpp"

namespace mfsdp {

[[nodiscard]] Result<ExitCode> run_one(const SimOptions& options, const Session& session);

}  // namespace mfsdp
