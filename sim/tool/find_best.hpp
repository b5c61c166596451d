// --find fastest and --find cheapest.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/tool/session.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep.hpp"

namespace mfsdp {

/// Chooses among the combinations of the sweep, with an axis more for each of strategy, outer-dp,
/// micro-batch, recompute and, with experts, ep that the command line leaves open.
[[nodiscard]] Result<ExitCode> find_best(const Sweep& sweep, const SimOptions& options,
                                         const Session& session);

}  // namespace mfsdp
