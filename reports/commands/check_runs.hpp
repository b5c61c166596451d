// mfsdp-report check: a run, or two commands, held against a budget.
#pragma once

#include "reports/commands/command.hpp"

namespace mfsdp {

[[nodiscard]] Command check_command();

}  // namespace mfsdp
