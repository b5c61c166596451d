// --find max-micro-batch, max-seq-len and min-gpus.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep.hpp"

namespace mfsdp {

/// Searches once for each combination of the lists.
[[nodiscard]] Result<ExitCode> find_limits(const SweptArguments& swept, const SimOptions& options,
                                           const Session& session);

}  // namespace mfsdp
