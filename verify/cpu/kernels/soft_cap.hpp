// Soft caps: values x become cap * tanh(x / cap), near x where |x| is far below the cap, and never
// beyond it (Gemma 2, arXiv 2408.00118).
#pragma once

#include <cmath>
#include <cstdint>

#include "verify/cpu/kernels/exponential.hpp"

namespace mfsdp {

/// tanh x, with the same bits on every machine in float: from x's own series where it is small, as
/// the quotient loses bits there.
template <class R>
[[nodiscard]] R hyperbolic_tangent(R x) {
  const R size = x < 0 ? -x : x;
  const R square = x * x;
  // Up to 0.02 the first term left out, 17 x^7 / 315, is below 4e-12 of x.
  if (size < R(0.02)) return x - x * square / 3 + x * square * square * 2 / 15;
  const R power = exponential(-2 * size);
  const R result = (1 - power) / (1 + power);
  return x < 0 ? -result : result;
}
[[nodiscard]] inline double hyperbolic_tangent(double x) { return std::tanh(x); }

/// What the cap, above 0, makes of a value.
template <class R>
[[nodiscard]] R softcapped(R value, R cap) {
  return cap * hyperbolic_tangent(value / cap);
}
/// The slope there, of the value that the cap has made: 1 - tanh^2.
template <class R>
[[nodiscard]] R softcap_slope(R capped, R cap) {
  const R share = capped / cap;
  return 1 - share * share;
}

}  // namespace mfsdp
