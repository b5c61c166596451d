// The learning rate of each step: linear warm-up, then half a cosine down to a minimum.
#pragma once

#include <cstdint>

namespace mfsdp {

struct LearningRate {
  double peak = 3e-4;
  double minimum = 0;       ///< reached in the last step; at most `peak`
  std::int64_t warmup = 0;  ///< steps; step s of them (from 0) has peak * (s + 1) / warmup
};

/// The rate of step `step` (from 0) of a run of `steps`. Past the last step it stays at the
/// minimum; a run that ends within the warm-up never leaves it.
[[nodiscard]] double learning_rate_at(const LearningRate& rate, std::int64_t step,
                                      std::int64_t steps);

}  // namespace mfsdp
