// Trainings that add in another order than one rank does: the same in fp64 up to what rounding makes.
#pragma once

#include <cmath>
#include <string>

#include "tests/gpu_backend/train/equality_runs.hpp"

namespace mfsdp::test {

/// All numbers in that dtype; with fp64 main weights and gradients too.
inline void compute_in(DType dtype, PlanConfig& config) {
  config.param_dtype = dtype;
  if (dtype == DType::fp64)
    config.main_dtype = config.grad_dtype = config.reduce_dtype = DType::fp64;
}

/// A training without faults, in the memory of its plan. `words` name it.
inline Told checked_training(const PlanConfig& config, std::int64_t steps,
                             const std::string& words) {
  Told told = train(config, steps, Skewed(config.model.vocab, 64, config.document_mask));
  EXPECT_EQ(fault_of(told), "") << words;
  EXPECT_TRUE(told.allocated_as_planned) << words;
  return told;
}

/// The largest difference of two elements, over all parameters.
inline double most_apart(const Weights& a, const Weights& b) {
  double most = 0;
  for (const auto& [name, values] : a)
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double apart = std::fabs(double{values[i]} - double{b.at(name)[i]});
      most = std::isnan(apart) ? INFINITY : std::max(most, apart);
    }
  return most;
}

/// Losses, norms, weights and gradients of trainings in fp64.
inline void expect_rounded_alike(const Told& told, const Told& one, const std::string& words) {
  constexpr double kBound = 1e-6;
  ASSERT_EQ(told.steps.size(), one.steps.size());
  for (std::size_t s = 0; s < one.steps.size(); ++s) {
    EXPECT_NEAR(told.steps[s].loss, one.steps[s].loss, kBound) << words;
    EXPECT_NEAR(told.steps[s].grad_norm, one.steps[s].grad_norm, kBound) << words;
  }
  EXPECT_TRUE(told.torn.empty()) << words;
  EXPECT_LT(most_apart(told.weights, one.weights), kBound) << words;
  EXPECT_LT(most_apart(told.gradients, one.gradients), kBound) << words;
}

}  // namespace mfsdp::test
