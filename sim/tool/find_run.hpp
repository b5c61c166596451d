// --find: the largest, smallest, fastest or cheapest configuration that fits, and why.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep.hpp"

namespace mfsdp {

/// Exit status 1 if nothing fits.
[[nodiscard]] Result<ExitCode> run_find(const SweptArguments& swept, const SimOptions& options,
                                        const Session& session);

}  // namespace mfsdp
