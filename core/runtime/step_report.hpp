// The results of a step for the host: the plan's buffer "report", fp32 [8], in two halves.
#pragma once

#include <algorithm>
#include <array>
#include <bit>

namespace mfsdp {

/// The first half.
struct LossReport {
  float mean_loss = 0;  ///< per token with a label; 0 where no token has one
  float tokens = 0;
  /// 0 where there are none: such a step has no gradient. Where gradients are scaled, over the
  /// scale too: what gradients are multiplied by.
  float inverse_tokens = 0;
  float absent = 0;  ///< 0 from a device; another value, set by the host: not yet written
};

/// The second half; an evaluation leaves it alone.
struct NormReport {
  float norm = 0;         ///< of the gradient of the mean loss, before clipping
  float clip_factor = 1;  ///< min(1, limit / norm)
  float non_finite = 0;   ///< 1 where the norm is infinite or NaN
  float loss_scale = 0;   ///< that the step's gradients had; 0: none
};

/// A half of the report from and to the plan's buffer, fp32 [4].
template <class Half>
[[nodiscard]] Half read_report(const float* from) {
  std::array<float, 4> values{};
  std::copy_n(from, values.size(), values.begin());
  return std::bit_cast<Half>(values);
}
void write_report(const auto& half, float* to) {
  const auto values = std::bit_cast<std::array<float, 4>>(half);
  std::copy_n(values.begin(), values.size(), to);
}

}  // namespace mfsdp
