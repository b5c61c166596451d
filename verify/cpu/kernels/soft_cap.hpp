// Logit softcap: x becomes cap * tanh(x / cap), which is near x if |x| is far below the cap, and
// never exceeds the cap (Gemma 2, arXiv 2408.00118).
#pragma once

#include <cmath>

#include "verify/cpu/kernels/exponential.hpp"

namespace mfsdp {

/// tanh x, in float with the same bits on every machine. Small x use the Taylor series, because the
/// quotient loses bits there.
template <class R>
[[nodiscard]] R hyperbolic_tangent(R x) {
  const R size = x < 0 ? -x : x;
  const R square = x * x;
  // Up to 0.02 the first omitted term, 17 x^7 / 315, is below 4e-12 of x.
  if (size < R(0.02)) return x - x * square / 3 + x * square * square * 2 / 15;
  const R power = exponential(-2 * size);
  const R result = (1 - power) / (1 + power);
  return x < 0 ? -result : result;
}
[[nodiscard]] inline double hyperbolic_tangent(double x) { return std::tanh(x); }

/// Applies a cap above 0 to a value.
template <class R>
[[nodiscard]] R softcapped(R value, R cap) {
  return cap * hyperbolic_tangent(value / cap);
}
/// The slope of the cap, 1 - tanh^2, computed from its result.
template <class R>
[[nodiscard]] R softcap_slope(R capped, R cap) {
  const R share = capped / cap;
  return 1 - share * share;
}

}  // namespace mfsdp
