// --list-models, --list-gpus, --list-clusters.
#pragma once

#include <string>

#include "core/base/error.hpp"
#include "reports/session/session.hpp"
#include "sim/tool/sim_options.hpp"

namespace mfsdp {

/// The table that the options ask for, text or Markdown.
[[nodiscard]] Result<std::string> catalogue(const SimOptions& options, const Session& session);

}  // namespace mfsdp
