// mfsdp-report html: runs as one page.
#pragma once

#include "reports/commands/command.hpp"

namespace mfsdp {

[[nodiscard]] Command html_command();

}  // namespace mfsdp
