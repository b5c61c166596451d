// Conversion of times from tables and formulas to the simulator's integer nanoseconds.
#pragma once

#include <cmath>

#include "core/base/quantity.hpp"

namespace mfsdp {

inline constexpr double kNanosPerMicro = 1e3;
inline constexpr double kNanosPerMilli = 1e6;

/// Nearest integer, halves away from zero. Throws OverflowError above 2^62 ns (146 years) and for
/// NaN.
[[nodiscard]] inline Nanos to_nanos(double nanoseconds) {
  if (!(nanoseconds >= 0 && nanoseconds < 4.6e18))
    throw OverflowError("a duration exceeds 2^62 nanoseconds");
  return Nanos(std::llround(nanoseconds));
}

}  // namespace mfsdp
