// A run of the store, held against the plan that it followed.
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

/// The plan is the one that --plan names, or is built anew from the stored configuration; it must
/// have the hash that the run stored. Errors: no such store or run, no launches in it, another
/// plan.
[[nodiscard]] Result<RunConformance> conform(const VerifyOptions& options, const Session& session);

}  // namespace mfsdp
