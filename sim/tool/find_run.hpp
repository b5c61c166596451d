// --find: the largest, smallest, fastest or cheapest configuration that fits, and why.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/tool/session.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep.hpp"

namespace mfsdp {

/// max-micro-batch, max-seq-len and min-gpus search once for every combination of the lists.
/// fastest and cheapest choose among the combinations; what the command line leaves open of
/// strategy, outer-dp, micro-batch and recompute is varied too. Exit 1 where nothing fits.
[[nodiscard]] Result<ExitCode> run_find(const Sweep& sweep, const SimOptions& options,
                                        const Session& session);

}  // namespace mfsdp
