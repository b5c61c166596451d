// mfsdp-report export: runs as lines of JSON, or as a store of their own.
#pragma once

#include "reports/commands/command.hpp"

namespace mfsdp {

[[nodiscard]] Command export_command();

}  // namespace mfsdp
