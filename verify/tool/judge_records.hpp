// Judges the records of collectives from ranks of other trainers.
#pragma once

#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {

/// --flight-recorder: dumps of PyTorch, one for each rank.
[[nodiscard]] Result<ExitCode> judge_flight_dumps(const VerifyOptions& options,
                                                  const Session& session);
/// --nccl-inspector: logs of NCCL's profiler plugin, one for each process.
[[nodiscard]] Result<ExitCode> judge_inspector_logs(const VerifyOptions& options,
                                                    const Session& session);

}  // namespace mfsdp
