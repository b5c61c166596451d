// --fidelity and --calibrate: how good the prices are, and how to make them better.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "sim/tool/sim_options.hpp"

namespace mfsdp {

/// All measurements there are, against the model.
[[nodiscard]] Result<ExitCode> run_fidelity(const SimOptions& options, const Session& session);

/// --published: runs that others published, beside their predictions.
[[nodiscard]] Result<ExitCode> run_published(const SimOptions& options, const Session& session);

/// Fits the files of --calibrate and writes --calibrate-out, GPU_calibrated.toml by default.
[[nodiscard]] Result<ExitCode> run_calibrate(const SimOptions& options, const Session& session);

}  // namespace mfsdp
