// Comma lists without --find: every combination is predicted, and is a row.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/space_flags.hpp"

namespace mfsdp {

/// `options`: those of the first combination.
[[nodiscard]] Result<ExitCode> run_sweep(const SweptArguments& swept, const SimOptions& options,
                                         const Session& session);

}  // namespace mfsdp
