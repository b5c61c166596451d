#include "gpu_backend/cuda/kernels/update.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/runtime/step_report.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::DecayRun;

/// Runs of 0.3, 0.0 and the rest of a slice: their ends lie inside packs.
std::vector<DecayRun> make_runs(std::int64_t elements) {
  const std::int64_t cut = elements * 3 / 10;
  if (cut < 2) return {{.first = 0, .count = elements, .decays = true}};
  return {{.first = 0, .count = cut, .decays = true},
          {.first = cut, .count = 1, .decays = false},
          {.first = cut + 1, .count = elements - cut - 1, .decays = true}};
}

/// Tensors of a slice whose ends lie inside packs: slots 1, 0 and 2, the last of which is absent if
/// the slice is small.
std::vector<AmaxRun> make_amax_runs(std::int64_t elements) {
  const std::int64_t cut = elements * 4 / 10 + 1;
  if (elements < cut + 3) return {{.first = 0, .count = elements, .slot = 1}};
  return {{.first = 0, .count = cut, .slot = 1},
          {.first = cut, .count = 2, .slot = 0},
          {.first = cut + 2, .count = elements - cut - 2, .slot = 2}};
}

template <class W>
std::vector<float> largest_of_runs(const std::vector<W>& weights,
                                   const std::vector<AmaxRun>& runs) {
  std::vector<float> largest(3);
  for (const AmaxRun& run : runs)
    for (std::int64_t i = run.first; i < run.first + run.count; ++i)
      largest[static_cast<std::size_t>(run.slot)] =
          std::max(largest[static_cast<std::size_t>(run.slot)],
                   std::abs(widen(weights[static_cast<std::size_t>(i)])));
  return largest;
}

struct Step {
  OptimizerSettings optimizer{.weight_decay = 0.5};
  StepBlock block = make_step_block(2, 0.01, optimizer);
  LossReport loss{.mean_loss = 1, .tokens = 4, .inverse_tokens = 0.25};
  NormReport norm{.norm = 3, .clip_factor = 0.5};
};

/// AdamW as its paper has it, in double: no code of the backends.
void adamw_reference(const Step& step, double scale, bool decays, double gradient, double& m,
                     double& v, double& weight) {
  const OptimizerSettings& o = step.optimizer;
  const double rate = step.block.learning_rate;
  gradient *= scale;
  m = o.beta1 * m + (1 - o.beta1) * gradient;
  v = o.beta2 * v + (1 - o.beta2) * gradient * gradient;
  if (decays) weight -= rate * o.weight_decay * weight;
  const double m_hat = m / step.block.bias_correction1;
  const double v_hat = v / step.block.bias_correction2;
  weight -= rate * m_hat / (std::sqrt(v_hat) + o.epsilon);
}

template <class G, class W, class C>
void check_update(bool adam, bool has_main, const Step& step = {}) {
  for (const std::int64_t elements : {1, 63, 5000, 70001}) {
    SCOPED_TRACE(testing::Message() << elements << " elements, adam " << adam);
    const auto gradients = random_values<G>(elements, 1);
    const auto weights = random_values<W>(elements, 2);
    const auto exp_avg = random_values<float>(elements, 3, 0.1F);
    auto exp_avg_sq = random_values<float>(elements, 4, 0.1F);
    for (float& value : exp_avg_sq) value *= value;
    const auto runs = make_runs(elements);
    const DeviceArray<G> d_gradients(gradients);
    const DeviceArray<W> d_weights(weights);
    const DeviceArray<C> compute(elements);
    const DeviceArray<float> d_exp_avg(exp_avg), d_exp_avg_sq(exp_avg_sq);
    const DeviceArray<StepBlock> block(std::vector<StepBlock>{step.block});
    const DeviceArray<LossReport> loss(std::vector<LossReport>{step.loss});
    const DeviceArray<NormReport> norm(std::vector<NormReport>{step.norm});
    const DeviceArray<DecayRun> d_runs(runs);
    const auto amax_runs = make_amax_runs(elements);
    const DeviceArray<AmaxRun> d_amax_runs(amax_runs);
    const DeviceArray<float> amax(std::vector<float>(3));
    expect_runs(update(
        kernels::Update<G, W, C>{
            .elements = elements,
            .gradients = d_gradients.data(),
            .weights = d_weights.data(),
            .compute = has_main ? compute.data() : nullptr,
            .states = {adam ? d_exp_avg.data() : nullptr, adam ? d_exp_avg_sq.data() : nullptr},
            .step = block.data(),
            .loss = reinterpret_cast<const float*>(loss.data()),
            .norm = reinterpret_cast<const float*>(norm.data())},
        adam ? Optimizer::adamw : Optimizer::sgd, step.optimizer, {d_runs.data(), runs.size()},
        nullptr,
        {.runs = d_amax_runs.data(),
         .count = static_cast<std::int64_t>(amax_runs.size()),
         .amax = amax.data()}));
    EXPECT_EQ(amax.download(), largest_of_runs(d_weights.download(), amax_runs));
    if (step.norm.non_finite != 0) {
      EXPECT_TRUE(same_bits(d_weights.download(), weights));
      EXPECT_TRUE(same_bits(d_exp_avg.download(), exp_avg));
      continue;
    }
    const auto wide_gradients = widened(gradients);
    auto expected = widened(weights), m = widened(exp_avg), v = widened(exp_avg_sq);
    const double scale = 0.25 * 0.5;
    for (const auto& [first, count, decays, share] : runs)
      for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(first + count);
           ++i) {
        if (adam) {
          adamw_reference(step, scale, decays, wide_gradients[i], m[i], v[i], expected[i]);
          continue;
        }
        const double rate = step.block.learning_rate;
        expected[i] -= rate * (decays ? 0.5 * expected[i] : 0) + rate * scale * wide_gradients[i];
      }
    EXPECT_LT(relative_error(d_weights.download(), expected), kTolerance<W>);
    if (has_main) {
      EXPECT_LT(relative_error(compute.download(), expected), kTolerance<C>);
    }
    if (adam) {
      EXPECT_LT(relative_error(d_exp_avg.download(), m), 1e-5);
      EXPECT_LT(relative_error(d_exp_avg_sq.download(), v), 1e-5);
    }
    EXPECT_TRUE(d_weights.margin_is_whole() && compute.margin_is_whole());
  }
}

TEST(DeviceUpdate, AdamWAndSgdInEveryPrecision) {
  for (const bool adam : {true, false}) {
    check_update<float, float, Bf16>(adam, true);
    check_update<Bf16, float, Bf16>(adam, true);
    check_update<float, float, float>(adam, false);
    check_update<Bf16, Bf16, Bf16>(adam, false);
    check_update<float, float, Fp16>(adam, true);
  }
}

TEST(DeviceUpdate, WithoutAFiniteNormNothingChanges) {
  check_update<float, float, Bf16>(true, true, {.norm = {.non_finite = 1}});
}

/// A decay that is wrong by one element is 0.5 % of that element alone: looked at one by one.
TEST(DeviceUpdate, RunsEndWhereTheyShould) {
  const std::int64_t elements = 41;
  const std::vector<DecayRun> runs{{.first = 0, .count = 5, .decays = false},
                                   {.first = 5, .count = 1, .decays = true},
                                   {.first = 6, .count = 10, .decays = false},
                                   {.first = 16, .count = 25, .decays = true}};
  const Step step;
  const DeviceArray<float> gradients(std::vector<float>(41, 0.0F)),
      weights(std::vector<float>(41, 1.0F));
  const DeviceArray<StepBlock> block(std::vector<StepBlock>{step.block});
  const DeviceArray<LossReport> loss(std::vector<LossReport>{step.loss});
  const DeviceArray<DecayRun> d_runs(runs);
  expect_runs(update(
      kernels::Update<float, float, float>{.elements = elements,
                                           .gradients = gradients.data(),
                                           .weights = weights.data(),
                                           .step = block.data(),
                                           .loss = reinterpret_cast<const float*>(loss.data())},
      Optimizer::sgd, step.optimizer, {d_runs.data(), runs.size()}, nullptr));
  const auto got = weights.download();
  for (std::int64_t i = 0; i < elements; ++i) {
    const bool decays = i == 5 || i >= 16;
    EXPECT_EQ(got[static_cast<std::size_t>(i)], decays ? 1 - 0.01F * 0.5F : 1.0F) << i;
  }
}

}  // namespace
}  // namespace mfsdp::cuda
