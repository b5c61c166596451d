// mfsdp-report import: what others have left, and results and stores of mfsdp, into the store.
#pragma once

#include "reports/commands/command.hpp"

namespace mfsdp {

[[nodiscard]] Command import_command();

}  // namespace mfsdp
