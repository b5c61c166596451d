// What the operating system says of memory.
#pragma once

#include "core/base/quantity.hpp"

namespace mfsdp {

/// The most that this process has had resident since its program began (VmHWM of
/// /proc/self/status); 0 where the system does not say.
[[nodiscard]] Bytes resident_high_water();

/// The machine's memory.
[[nodiscard]] Bytes physical_memory();

}  // namespace mfsdp
