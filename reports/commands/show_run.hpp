// mfsdp-report show: what a run came to, as the tool that made it printed it.
#pragma once

#include "reports/commands/command.hpp"

namespace mfsdp {

[[nodiscard]] Command show_command();

}  // namespace mfsdp
