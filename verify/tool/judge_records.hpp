// mfsdp-verify on what ranks of other trainers recorded of their collectives.
#pragma once

#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {

/// --flight-recorder: dumps of PyTorch, a rank each.
[[nodiscard]] Result<ExitCode> judge_flight_dumps(const VerifyOptions& options,
                                                  const Session& session);
/// --nccl-inspector: logs of NCCL's profiler plugin, a process each.
[[nodiscard]] Result<ExitCode> judge_inspector_logs(const VerifyOptions& options,
                                                    const Session& session);

}  // namespace mfsdp
