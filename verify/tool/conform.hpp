// Compares a run of the store with the plan that it followed.
#pragma once

#include <string>

#include "core/base/error.hpp"
#include "reports/session/session.hpp"
#include "verify/conformance/conformance.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {

struct RunConformance {
  std::string subject;  ///< "mfsdp.sqlite: run 0123..."
  std::string plan_hash;
  Conformance conformance;
};

/// Uses the plan of --plan, or builds it anew from the stored configuration. The plan must have the
/// hash that the run stored. Errors: no such store or run, a run without launches, another plan.
[[nodiscard]] Result<RunConformance> conform(const VerifyOptions& options, const Session& session);

}  // namespace mfsdp
