// The progress of a training run: everything needed to resume, except weights and optimizer states.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/loss_scale.hpp"

namespace mfsdp {

struct TrainPosition {
  std::int64_t step = 0;     ///< steps done
  std::int64_t samples = 0;  ///< samples that they read; also the number of the next one
                             ///< (sample_order.hpp)
  std::int64_t tokens = 0;   ///< in these samples
  std::optional<LossScaleState> loss_scale{};  ///< if the plan scales the loss
  std::vector<float> amax_history{};           ///< of delayed scaling: the whole port

  friend bool operator==(const TrainPosition&, const TrainPosition&) = default;
};

}  // namespace mfsdp
