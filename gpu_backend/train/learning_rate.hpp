// The learning rate of each step: linear warm-up, then a schedule down to a minimum.
#pragma once

#include <cstdint>

#include "core/plan/rate_schedule.hpp"

namespace mfsdp {

struct LearningRate {
  double peak = 3e-4;
  double minimum = 0;       ///< reached in the last step, except with `constant`; at most `peak`
  std::int64_t warmup = 0;  ///< steps; step s of them (from 0) has peak * (s + 1) / warmup
  RateSchedule schedule = RateSchedule::cosine;
  std::int64_t decay = 0;  ///< for `wsd`: length of the decay at the end, after the warm-up
};

/// The rate of step `step` (from 0) of a run of `steps`. After the last step it stays at the
/// minimum. A run that ends within the warm-up never leaves it.
[[nodiscard]] double learning_rate_at(const LearningRate& rate, std::int64_t step,
                                      std::int64_t steps);

}  // namespace mfsdp
