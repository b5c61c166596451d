// Plans of a small model on GPUs: against the CPU's machine, against themselves, byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu_backend/cuda/cuda_backend.hpp"
#include "tests/gpu_backend/cuda/device/cuda_ranks.hpp"
#include "tests/support/pipeline.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::int64_t kSteps = 5;

class CudaBackendTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { set_environment(); }
};

PlanConfig configuration(std::int64_t ranks, Strategy strategy, DType dtype = DType::bf16) {
  PlanConfig config = test::nano(ranks, strategy);
  config.seq_len = 64;
  config.logits_chunk = 32;
  config.microbatches = 2;
  config.param_dtype = dtype;
  config.deterministic = true;
  return config;
}

bool has_gpus(std::int64_t needed) {
  const auto count = count_devices();
  return count && *count >= needed;
}

void expect_ends_well(const CudaTold& told) {
  for (std::size_t r = 0; r < told.ends.size(); ++r)
    ASSERT_TRUE(told.ends[r]) << "rank " << r << ": " << told.ends[r].error().message();
  ASSERT_EQ(told.steps.size(), static_cast<std::size_t>(kSteps));
}

void expect_same_bits(const CudaTold& a, const CudaTold& b) {
  expect_ends_well(a);
  expect_ends_well(b);
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << "step " << i + 1;
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm) << "step " << i + 1;
  }
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.computed, b.computed);
}

constexpr std::array kStrategies{Strategy::no_shard, Strategy::optim, Strategy::optim_grads,
                                 Strategy::optim_grads_params};

/// fp32 sums differ only in their order. bf16 rounds to 8 bits at other places, and training from
/// other weights diverges: the norm shows this better than the loss (about 5).
void expect_as_on_the_cpu(const PlanConfig& config) {
  SCOPED_TRACE(to_string(config.strategy));
  SCOPED_TRACE(to_string(config.param_dtype));
  const test::Counting data;
  const test::Told cpu = test::train(config, kSteps, data);
  ASSERT_TRUE(cpu.end) << cpu.end.error().message();
  const CudaTold gpu = train_on_gpus(config, kSteps, data);
  expect_ends_well(gpu);
  const bool exact = config.param_dtype == DType::fp32;
  for (std::size_t i = 0; i < cpu.steps.size(); ++i) {
    const StepReport& step = gpu.steps[i];
    const double norms = step.grad_norm / cpu.steps[i].grad_norm;
    const double close = i == 0 ? 1e-2 : 1e-1;
    EXPECT_NEAR(step.loss, cpu.steps[i].loss, exact ? 1e-3 : 1e-2) << "step " << i + 1;
    EXPECT_NEAR(norms, 1, exact ? 1e-2 : close) << "step " << i + 1;
    EXPECT_EQ(step.tokens, cpu.steps[i].tokens);
  }
}

TEST_F(CudaBackendTest, TrainsAsTheCpuDoesOnOneGpu) {
  for (const Strategy strategy : kStrategies)
    for (const DType dtype : {DType::fp32, DType::bf16})
      expect_as_on_the_cpu(configuration(1, strategy, dtype));
}

/// Two stages on two ranks have the bits of one rank.
TEST_F(CudaBackendTest, StagesTrainAsOneRankOnTwoGpus) {
  if (!has_gpus(2)) GTEST_SKIP() << "needs two GPUs";
  const Job job = test::pipeline();
  PlanConfig alone = job.programs[0].config;
  alone.mesh = {};
  test::Counting data;
  data.vocab = alone.model.vocab;
  const auto deterministic = [](CudaSettings& settings) { settings.gemm.deterministic = true; };
  const CudaTold whole = train_on_gpus(alone, kSteps, data, deterministic);
  const CudaTold stages = train_on_gpus(job.programs, kSteps, data, deterministic);
  ASSERT_TRUE(whole.end) << whole.end.error().message();
  ASSERT_TRUE(stages.end) << stages.end.error().message();
  EXPECT_TRUE(stages.allocated_as_planned);
  EXPECT_EQ(whole.losses(), stages.losses());
  EXPECT_EQ(whole.weights, stages.weights);
}

TEST_F(CudaBackendTest, TrainsAsTheCpuDoesOnTwoGpus) {
  if (!has_gpus(2)) GTEST_SKIP() << "needs two GPUs";
  for (const Strategy strategy : kStrategies)
    for (const DType dtype : {DType::fp32, DType::bf16})
      expect_as_on_the_cpu(configuration(2, strategy, dtype));
}

TEST_F(CudaBackendTest, PoolsAreAsThePlanSays) {
  for (const std::int64_t ranks : {1, 2}) {
    if (!has_gpus(ranks)) GTEST_SKIP() << "needs two GPUs";
    const PlanConfig config = configuration(ranks, Strategy::optim_grads_params);
    const CudaTold told = train_on_gpus(config, kSteps, test::Counting());
    expect_ends_well(told);
    EXPECT_TRUE(told.allocated_as_planned);
  }
}

/// Random delays, a delay before another op in each step, poison.
TEST_F(CudaBackendTest, DelaysAndPoisonChangeNoBit) {
  for (const std::int64_t ranks : {1, 2}) {
    if (!has_gpus(ranks)) GTEST_SKIP() << "needs two GPUs";
    const test::Counting data;
    const PlanConfig config = configuration(ranks, Strategy::optim_grads_params);
    const CudaTold plain = train_on_gpus(config, kSteps, data);
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(seed);
      expect_same_bits(plain, train_on_gpus(config, kSteps, data, [&](CudaSettings& settings) {
                         settings.poison = seed % 2 == 0;
                         settings.delays.seed = seed;
                       }));
    }
  }
}

TEST_F(CudaBackendTest, OpsAreTimed) {
  const CudaTold told =
      train_on_gpus(configuration(1, Strategy::optim_grads_params), kSteps, test::Counting());
  expect_ends_well(told);
  ASSERT_FALSE(told.timings.empty());
  for (const OpTiming& timing : told.timings) {
    EXPECT_EQ(timing.step, kSteps - 1);
    EXPECT_LE(timing.begin, timing.end);
  }
}

TEST_F(CudaBackendTest, AFailureNamesRankOpAndShape) {
  const CudaTold told = train_on_gpus(
      configuration(1, Strategy::optim_grads_params), kSteps, test::Counting(),
      [](CudaSettings& settings) {
        const Program& program = *settings.kernels.program;
        for (const Segment& segment : program.find_plan(PlanRole::train)->segments)
          for (const Op& op : segment.ops)
            if (const auto* kernel = std::get_if<Kernel>(&op.body);
                kernel != nullptr && kernel->kind == KernelKind::swiglu_forward)
              settings.fault = {
                  .kind = InjectedFault::Kind::fail, .rank = 0, .op = op.id, .step = 2};
      });
  ASSERT_FALSE(told.ends.front());
  EXPECT_THAT(told.ends.front().error().message(), testing::HasSubstr("rank 0, layers."));
  EXPECT_THAT(told.ends.front().error().message(), testing::HasSubstr("step 3"));
  EXPECT_THAT(told.ends.front().error().message(), testing::HasSubstr("gate_up bf16 ["));
}

TEST_F(CudaBackendTest, AStopEndsTheRunAtItsDeadline) {
  const CudaTold told = train_on_gpus(
      configuration(1, Strategy::optim_grads_params), kSteps, test::Counting(),
      [](CudaSettings& settings) {
        settings.deadline = std::chrono::milliseconds(1500);
        for (const Segment& segment :
             settings.kernels.program->find_plan(PlanRole::train)->segments)
          for (const Op& op : segment.ops)
            if (const auto* kernel = std::get_if<Kernel>(&op.body);
                kernel != nullptr && kernel->kind == KernelKind::update)
              settings.fault = {
                  .kind = InjectedFault::Kind::stop, .rank = 0, .op = op.id, .step = 1};
      });
  ASSERT_FALSE(told.ends.front());
  EXPECT_THAT(told.ends.front().error().message(), testing::HasSubstr("has not ended"));
}

}  // namespace
}  // namespace mfsdp::cuda
