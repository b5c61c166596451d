// Sums that end a step: gradients into main gradients, the loss, the norm of all gradients.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "verify/cpu/scalars/lanes.hpp"
#include "verify/cpu/scalars/scalar.hpp"
#include "verify/cpu/scalars/vector_clones.hpp"

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

/// The first half of a step's report, as the plan has it.
struct LossReport {
  float mean_loss = 0;  ///< per token with a label; 0 where no token has one
  float tokens = 0;
  float inverse_tokens = 0;  ///< 0 where there are none: such a step has no gradient
  float unused = 0;
};

/// The second half.
struct NormReport {
  float norm = 0;         ///< of the gradient of the mean loss, before clipping
  float clip_factor = 1;  ///< min(1, limit / norm)
  float non_finite = 0;   ///< 1 where the norm is infinite or NaN
  float unused = 0;
};

/// A half of the report from and to the plan's buffer, fp32 [4].
template <class Half>
[[nodiscard]] Half read_report(const float* from) {
  std::array<float, 4> values{};
  std::copy_n(from, values.size(), values.begin());
  return std::bit_cast<Half>(values);
}
template <class Half>
void write_report(const Half& half, float* to) {
  const auto values = std::bit_cast<std::array<float, 4>>(half);
  std::copy_n(values.begin(), values.size(), to);
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
