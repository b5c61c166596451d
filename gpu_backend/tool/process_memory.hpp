// What the operating system says of memory.
#pragma once

#include "core/base/quantity.hpp"

namespace mfsdp {

/// The most that this process has had resident; 0 where the system does not tell.
[[nodiscard]] Bytes resident_high_water();

/// The machine's memory.
[[nodiscard]] Bytes physical_memory();

}  // namespace mfsdp
