// mfsdp-report gc: removes runs from a store.
#pragma once

#include "reports/commands/command.hpp"

namespace mfsdp {

[[nodiscard]] Command gc_command();

}  // namespace mfsdp
