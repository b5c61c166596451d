// Whether updates scale gradients by 1/T of this step, once, and clip them by this step's norm.
//
//   cross_entropy (each chunk) --+--> loss_sums -- all_gather --> loss_finish --> 1/T --> update
//   norm_partial (each group)  --+--> partials  -- all_gather --> norm_finish --> clip factor
#pragma once

#include "verify/proof/followed_ops.hpp"
#include "verify/proof/unrolled_plan.hpp"

namespace mfsdp {

/// Finds MF307, MF308, MF311 and steps of other than the configured number of microbatches (MF312).
void check_scales(const UnrolledPlan& unrolled, const FollowedOps& followed, FindingList& findings);

}  // namespace mfsdp
