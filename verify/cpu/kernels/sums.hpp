// Sums that end a step: gradients into main gradients, the loss, the norm of all gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>

#include "core/base/quantity.hpp"
#include "core/runtime/scalar.hpp"
#include "core/runtime/step_report.hpp"
#include "verify/cpu/kernels/lanes.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

/// out = in, or out += in, rounded once. Also the cast from one dtype to another.
template <class In, class Out>
MFSDP_VECTOR_CLONES void accumulate(std::int64_t count, const In* in, bool adds, Out* out) {
  for (std::int64_t i = 0; i < count; ++i)
    out[i] = narrow<Out>(adds ? widen(out[i]) + widen(in[i]) : widen(in[i]));
}

/// sums[count] = the sum of all ranks' blocks in rank order; each block begins `stride` elements
/// after the previous one.
template <class In>
MFSDP_VECTOR_CLONES void sum_parts(std::int64_t ranks, std::int64_t stride, std::int64_t count,
                                   const In* in, Real<In>* sums) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] = widen(in[i]);
  for (std::int64_t rank = 1; rank < ranks; ++rank)
    for (std::int64_t i = 0; i < count; ++i) sums[i] += widen(in[rank * stride + i]);
}

/// Sum of squares in double, because a shard has many elements.
template <class T>
[[nodiscard]] double sum_of_squares(std::int64_t count, const T* values) {
  return sum_lanes<double>(count, [values](std::int64_t i) {
    const double value = widen(values[i]);
    return value * value;
  });
}

/// The same for gradients that --exact-sums rounded to steps of 2^exponent, in squares of steps.
/// `outlier`: set to the first value that is not rounded so; nothing is summed then. Throws
/// OverflowError if the sum exceeds 63 bits.
[[nodiscard]] inline std::int64_t exact_sum_of_squares(std::span<const float> values,
                                                       std::int64_t exponent,
                                                       std::optional<float>& outlier) {
  const float per_unit = std::ldexp(1.0F, -static_cast<int>(exponent));
  std::int64_t sum = 0;
  for (const float value : values) {
    const float steps = value * per_unit;
    if (!(std::fabs(steps) <= 0x1p24F) || steps != std::trunc(steps)) {
      outlier = value;
      return 0;
    }
    const auto whole = static_cast<std::int64_t>(steps);
    sum = checked_add(sum, whole * whole);
  }
  return sum;
}

/// `sums`: loss and tokens of each rank, in rank order. `scale`: of the gradients.
template <class T>
[[nodiscard]] LossReport finish_loss(std::span<const T> sums, double scale = 1) {
  double loss = 0;
  double tokens = 0;
  for (std::size_t i = 0; i + 1 < sums.size(); i += 2) {
    loss += widen(sums[i]);
    tokens += widen(sums[i + 1]);
  }
  if (tokens == 0) return {};
  return {.mean_loss = static_cast<float>(loss / tokens),
          .tokens = static_cast<float>(tokens),
          .inverse_tokens = static_cast<float>(1 / (tokens * scale))};
}

/// `squares`: sum of squares of the gradients of summed losses. `limit` 0: no clipping. The 1e-6 in
/// the factor is PyTorch's (clip_grad_norm_).
[[nodiscard]] inline NormReport finish_norm(double squares, double inverse_tokens, double limit) {
  const double norm = std::sqrt(squares) * inverse_tokens;
  const double factor = limit == 0 ? 1 : std::min(1.0, limit / (norm + 1e-6));
  return {.norm = static_cast<float>(norm),
          .clip_factor = static_cast<float>(factor),
          .non_finite = std::isfinite(norm) ? 0.0F : 1.0F};
}
[[nodiscard]] inline NormReport finish_norm(std::span<const float> partials, double inverse_tokens,
                                            double limit) {
  return finish_norm(std::accumulate(partials.begin(), partials.end(), 0.0), inverse_tokens, limit);
}
[[nodiscard]] inline NormReport finish_norm(std::span<const std::int64_t> partials,
                                            std::int64_t exponent, double inverse_tokens,
                                            double limit) {
  const std::int64_t sum =
      std::accumulate(partials.begin(), partials.end(), std::int64_t{0}, checked_add);
  return finish_norm(std::ldexp(static_cast<double>(sum), static_cast<int>(2 * exponent)),
                     inverse_tokens, limit);
}

}  // namespace mfsdp::kernels
