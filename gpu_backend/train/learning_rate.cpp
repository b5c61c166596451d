#include "gpu_backend/train/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mfsdp {

double learning_rate_at(const LearningRate& rate, std::int64_t step, std::int64_t steps) {
  if (step < rate.warmup)
    return rate.peak * static_cast<double>(step + 1) / static_cast<double>(rate.warmup);
  // From the first step behind the warm-up, at the peak, to the last one, at the minimum.
  const std::int64_t intervals = steps - 1 - rate.warmup;
  if (step >= steps - 1 && intervals > 0) return rate.minimum;
  if (intervals <= 0) return step < steps ? rate.peak : rate.minimum;
  const double part = static_cast<double>(step - rate.warmup) / static_cast<double>(intervals);
  return rate.minimum + (rate.peak - rate.minimum) * (1 + std::cos(std::numbers::pi * part)) / 2;
}

}  // namespace mfsdp
