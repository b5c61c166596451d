// One configuration: predicted, stored, printed, explained, held against a budget.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "sim/tool/sim_options.hpp"

namespace mfsdp {

[[nodiscard]] Result<ExitCode> run_one(const SimOptions& options, const Session& session);

}  // namespace mfsdp
