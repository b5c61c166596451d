// The data that the host sends the optimizer in each step.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace mfsdp {

/// AdamW's constants and Muon's; SGD takes the weight decay alone.
struct OptimizerSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;      ///< added to the root of the second moment
  double weight_decay = 0.1;  ///< of matrices, decoupled from the gradient
  double momentum = 0.95;     ///< Muon's, of matrices

  friend bool operator==(const OptimizerSettings&, const OptimizerSettings&) = default;
};

/// The bytes of the plan's step block.
struct StepBlock {
  float learning_rate = 0;
  float bias_correction1 = 1;  ///< 1 - beta1^t, t the number of this update from 1
  float bias_correction2 = 1;  ///< 1 - beta2^t
  float unused = 0;
  std::int64_t step = 0;  ///< of the run, from 0
  std::uint64_t seed = 0;
  std::array<std::uint8_t, 32> reserved = {};
};
static_assert(sizeof(StepBlock) == 64 && std::is_trivially_copyable_v<StepBlock>);

/// The block of update number `step` + 1.
[[nodiscard]] StepBlock make_step_block(std::int64_t step, double learning_rate,
                                        const OptimizerSettings& settings, std::uint64_t seed = 0);

}  // namespace mfsdp
