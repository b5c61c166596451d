// How far a training run has come: all that it goes on from, beside its weights and optimizer
// states.
#pragma once

#include <cstdint>
#include <optional>

#include "core/plan/loss_scale.hpp"

namespace mfsdp {

struct TrainPosition {
  std::int64_t step = 0;     ///< steps done
  std::int64_t samples = 0;  ///< that they read; the number of the next one (sample_order.hpp)
  std::int64_t tokens = 0;   ///< of these samples
  std::optional<LossScaleState> loss_scale{};  ///< where the plan scales the loss

  friend bool operator==(const TrainPosition&, const TrainPosition&) = default;
};

}  // namespace mfsdp
