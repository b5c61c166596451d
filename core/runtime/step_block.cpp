#include "core/runtime/step_block.hpp"

#include <cmath>

namespace mfsdp {

StepBlock make_step_block(std::int64_t step, double learning_rate,
                          const OptimizerSettings& settings, std::uint64_t seed) {
  const auto updates = static_cast<double>(step + 1);
  return {.learning_rate = static_cast<float>(learning_rate),
          .bias_correction1 = static_cast<float>(1 - std::pow(settings.beta1, updates)),
          .bias_correction2 = static_cast<float>(1 - std::pow(settings.beta2, updates)),
          .step = step,
          .seed = seed};
}

}  // namespace mfsdp
