// Memory of the process and of the machine, from the operating system.
#pragma once

#include "core/base/quantity.hpp"

namespace mfsdp {

/// Maximum resident memory of this process since its program began (VmHWM of /proc/self/status); 0
/// if the system does not provide it.
[[nodiscard]] Bytes resident_high_water();

/// The machine's memory.
[[nodiscard]] Bytes physical_memory();

}  // namespace mfsdp
