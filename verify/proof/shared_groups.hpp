// Parameters that several classes of ranks have, such as a tied embedding on two stages.
#pragma once

#include "core/plan/job.hpp"
#include "verify/findings/finding_list.hpp"

namespace mfsdp {

/// MF303: two classes have a group that trains, and differ on an axis over which its gradient is not
/// summed. Each would update its copy with the gradient of its own uses alone. Gradients that one
/// class sends to another are not followed.
void check_shared_groups(const Job& job, FindingList& findings);

}  // namespace mfsdp
