// Errors that name everything asked for that the chosen engine cannot do.
#pragma once

#include "core/base/error.hpp"
#include "reports/session/session.hpp"
#include "sim/tool/sim_options.hpp"

namespace mfsdp {

/// Errors name all flags that only our own engine supports, or only those of others.
[[nodiscard]] Result<void> check_engine_flags(const SimOptions& options);

/// The errors of check_engine_flags(). Where there are any, also those of the configuration and the
/// engine's options, so that one answer has all reasons.
[[nodiscard]] Result<void> check_engine(const SimOptions& options, const Session& session);

}  // namespace mfsdp
