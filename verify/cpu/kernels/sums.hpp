// Sums that end a step: gradients into main gradients, the loss, the norm of all gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

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

/// Sum of squares in double: what it adds up is as long as a shard.
template <class T>
[[nodiscard]] double sum_of_squares(std::int64_t count, const T* values) {
  return sum_lanes<double>(count, [values](std::int64_t i) {
    const double value = widen(values[i]);
    return value * value;
  });
}

/// `sums`: loss and tokens of each rank, in rank order.
template <class T>
[[nodiscard]] LossReport finish_loss(std::span<const T> sums) {
  double loss = 0;
  double tokens = 0;
  for (std::size_t i = 0; i + 1 < sums.size(); i += 2) {
    loss += widen(sums[i]);
    tokens += widen(sums[i + 1]);
  }
  if (tokens == 0) return {};
  return {.mean_loss = static_cast<float>(loss / tokens),
          .tokens = static_cast<float>(tokens),
          .inverse_tokens = static_cast<float>(1 / tokens)};
}

/// `partials`: sums of squares of the gradients of summed losses. `limit` 0: no clipping. The
/// factor's 1e-6 is PyTorch's (clip_grad_norm_).
[[nodiscard]] inline NormReport finish_norm(std::span<const float> partials, double inverse_tokens,
                                            double limit) {
  double sum = 0;
  for (const float partial : partials) sum += partial;
  const double norm = std::sqrt(sum) * inverse_tokens;
  const double factor = limit == 0 ? 1 : std::min(1.0, limit / (norm + 1e-6));
  return {.norm = static_cast<float>(norm),
          .clip_factor = static_cast<float>(factor),
          .non_finite = std::isfinite(norm) ? 0.0F : 1.0F};
}

}  // namespace mfsdp::kernels
