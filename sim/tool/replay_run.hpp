// mfsdp-sim --replay: a recorded run's memory under its own and under other allocator settings.
#pragma once

#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "sim/tool/sim_options.hpp"

namespace mfsdp {

/// Exit code 1 where the settings asked for (--alloc-conf, else the record's own) run out of
/// --memory-limit and --require-fit is given.
[[nodiscard]] Result<ExitCode> run_replay(const SimOptions& options, const Session& session);

}  // namespace mfsdp
