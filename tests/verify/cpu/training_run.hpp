// Trains a model for a few steps on the CPU's machine with its real kernels, from weights that
// depend on names and data that depend on sample numbers alone, and gathers what the ranks are
// left with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"

namespace mfsdp::test {

/// Bits of a parameter's elements, by its name.
using ParameterBits = std::map<std::string, std::vector<std::uint32_t>>;

struct TrainingRun {
  std::int64_t steps = 20;
  std::int64_t first_sample = 0;  ///< number of the first sample of the first step
  float learning_rate = 3e-3F;
};

struct Trained {
  ParameterBits gradients;     ///< fp32; of the first step's summed loss, before clipping
  ParameterBits weights;       ///< those computed with
  ParameterBits main_weights;  ///< those updated; empty where the plan has none
  std::vector<float> losses;   ///< of each step
  std::vector<float> norms;    ///< of the mean loss's gradient in each step, before clipping
};

/// Trains on as many ranks as the mesh has. Errors: those of the plan and the run; ranks that hold
/// different bits of one element; elements that no rank holds; a rank whose allocations are not
/// byte for byte the plan's pools.
[[nodiscard]] Result<Trained> train_on_machine(const PlanConfig& config, const TrainingRun& run);

/// One number for all bits of all parameters.
[[nodiscard]] std::uint64_t hash_of(const ParameterBits& bits);

/// The first element in which two differ, for messages: "norm.weight[3]: 0x3f800000, 0x3f800001".
[[nodiscard]] std::string first_difference(const ParameterBits& a, const ParameterBits& b);

}  // namespace mfsdp::test
