#include "gpu_backend/train/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mfsdp {
namespace {

/// The fraction of the way from the peak to the minimum that is left when `part` of it is done,
/// each in [0, 1].
double left_of(RateSchedule schedule, double part) {
  if (schedule == RateSchedule::cosine) return (1 + std::cos(std::numbers::pi * part)) / 2;
  return 1 - part;
}

}  // namespace

double learning_rate_at(const LearningRate& rate, std::int64_t step, std::int64_t steps) {
  if (step < rate.warmup)
    return rate.peak * static_cast<double>(step + 1) / static_cast<double>(rate.warmup);
  if (rate.schedule == RateSchedule::constant) return rate.peak;
  // From step `begin`, which has the peak, to the last step, which has the minimum.
  const std::int64_t stable_end = steps - 1 - rate.decay;
  const std::int64_t begin =
      rate.schedule == RateSchedule::wsd ? std::max(rate.warmup, stable_end) : rate.warmup;
  const std::int64_t intervals = steps - 1 - begin;
  if (step >= steps - 1 && intervals > 0) return rate.minimum;
  if (intervals <= 0) return step < steps ? rate.peak : rate.minimum;
  if (step <= begin) return rate.peak;
  const double part = static_cast<double>(step - begin) / static_cast<double>(intervals);
  return rate.minimum + (rate.peak - rate.minimum) * left_of(rate.schedule, part);
}

}  // namespace mfsdp
