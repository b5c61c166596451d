// mfsdp-report compare: runs side by side.
#pragma once

#include "reports/commands/command.hpp"

namespace mfsdp {

[[nodiscard]] Command compare_command();

}  // namespace mfsdp
