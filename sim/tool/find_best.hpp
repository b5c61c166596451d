// --find fastest and --find cheapest.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep.hpp"

namespace mfsdp {

/// Searches the lists of the command line and the fields that it leaves open (with_open_axes()).
[[nodiscard]] Result<ExitCode> find_best(const SweptArguments& swept, const SimOptions& options,
                                         const Session& session);

}  // namespace mfsdp
