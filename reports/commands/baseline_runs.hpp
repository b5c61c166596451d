// mfsdp-report baseline: which run others are held against, and the golden values that it leaves.
#pragma once

#include "reports/commands/command.hpp"

namespace mfsdp {

[[nodiscard]] Command baseline_command();

}  // namespace mfsdp
