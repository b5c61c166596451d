// --find fastest and --find cheapest.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "core/cli/sim_options.hpp"
#include "core/cli/sweep.hpp"
#include "sim/tool/asker.hpp"
#include "sim/tool/session.hpp"

namespace mfsdp {

/// The sweep with an axis for each of strategy, outer-dp, micro-batch and recompute that the
/// command line leaves open.
[[nodiscard]] Result<Sweep> widened(const Sweep& sweep, const SimOptions& options, Asker& asker);

[[nodiscard]] Result<ExitCode> find_best(const Sweep& sweep, const SimOptions& options,
                                         const Session& session);

}  // namespace mfsdp
