// Real training of llama_nano on the CPU's machine.
#include "gpu_backend/train/trainer.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "tests/gpu_backend/train/training.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

using test::Counting;
using test::nano;
using test::Told;
using test::train;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Every strategy, HSDP and HFSDP, with uneven shards (3 ranks) among them.
std::vector<PlanConfig> all_strategies() {
  std::vector<PlanConfig> configs;
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
    for (const std::int64_t ranks : {2, 3}) configs.push_back(nano(ranks, strategy));
  for (const Strategy outer : {Strategy::no_shard, Strategy::optim}) {
    configs.push_back(nano(4));
    configs.back().mesh = data_parallel_mesh(2, 2);
    configs.back().outer_strategy = outer;
  }
  return configs;
}

std::string name_of(const PlanConfig& config) {
  return fmt::format("{} on {} x {}, outer {}", to_string(config.strategy),
                     config.mesh.size(Axis::dp_outer), config.mesh.size(Axis::dp_shard),
                     to_string(config.outer_strategy));
}

TEST(Trainer, EveryStrategyLearnsToCount) {
  const Counting data;
  for (const PlanConfig& config : all_strategies()) {
    const Told told = train(config, 20, data);
    ASSERT_TRUE(told.end) << told.end.error().message();
    ASSERT_EQ(told.steps.size(), 20U);
    // ln 264 = 5.58 at first: weights of deviation 0.02 make all tokens about equally likely.
    EXPECT_NEAR(told.steps.front().loss, std::log(264.0), 0.05) << name_of(config);
    EXPECT_LT(told.steps.back().loss, 4.8) << name_of(config);
  }
}

TEST(Trainer, StrategiesOfOneWorldSizeAgree) {
  const Counting data;
  const Told expected = train(nano(2, Strategy::no_shard), 6, data);
  for (const Strategy strategy :
       {Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params}) {
    const Told told = train(nano(2, strategy), 6, data);
    EXPECT_EQ(told.losses(), expected.losses()) << to_string(strategy);  // one bitwise class
    EXPECT_EQ(told.weights, expected.weights) << to_string(strategy);
  }
}

TEST(Trainer, TheFirstLossIsTheSameAtEveryWorldSize) {
  const Counting data;
  PlanConfig alone = nano(1);
  alone.microbatches = 4;
  PlanConfig both = nano(2);
  both.micro_batch = 2;
  const Told one = train(alone, 1, data);
  EXPECT_NEAR(train(nano(4), 1, data).steps.at(0).loss, one.steps.at(0).loss, 1e-5);
  EXPECT_NEAR(train(both, 1, data).steps.at(0).loss, one.steps.at(0).loss, 1e-5);
}

TEST(Trainer, TheSeedDecides) {
  const Counting data;
  const auto with_seed = [&](std::uint64_t seed) {
    return train(nano(), 4, data,
                 {.inputs = [&](TrainInputs& inputs) { inputs.settings.seed = seed; }});
  };
  EXPECT_EQ(with_seed(3).losses(), with_seed(3).losses());
  EXPECT_NE(with_seed(3).losses(), with_seed(4).losses());
}

TEST(Trainer, ReportsSayWhatAStepDid) {
  Counting data;
  data.prompt = 4;
  PlanConfig config = nano(2);
  config.microbatches = 3;
  const Told told = train(config, 5, data);
  ASSERT_EQ(told.steps.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    const StepReport& step = told.steps[i];
    EXPECT_EQ(step.step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(step.tokens, 2 * 3 * (16 - 4));  // ranks x microbatches x labelled tokens
    EXPECT_EQ(step.seen_tokens, step.step * 2 * 3 * 16);
    EXPECT_GT(step.grad_norm, 0);
    EXPECT_FLOAT_EQ(static_cast<float>(step.clip_factor),
                    std::min(1.0F, 1 / (static_cast<float>(step.grad_norm) + 1e-6F)));
    EXPECT_FALSE(step.non_finite);
    EXPECT_GT(step.duration, Nanos(0));
  }
  EXPECT_DOUBLE_EQ(told.steps[0].learning_rate, 5e-3);  // first of two steps of warm-up to 1e-2
  EXPECT_DOUBLE_EQ(told.steps[4].learning_rate, 1e-3);  // the minimum, in the last step
}

TEST(Trainer, EvaluatingChangesNoBitUnderAnyAllocator) {
  const Counting data;
  Counting held_out;
  held_out.size = 5;
  for (const PlanConfig& shape : {nano(2, Strategy::optim), nano(2), nano(3)})
    for (std::size_t a = 0; a < Names<AllocatorPolicy>::values.size(); ++a) {
      PlanConfig config = shape;
      config.allocator = static_cast<AllocatorPolicy>(a);
      config.microbatches = 2;
      const Told plain = train(config, 6, data);
      const Told told = train(config, 6, data, {.inputs = [&](TrainInputs& inputs) {
                                inputs.eval_data = &held_out;
                                inputs.settings.eval_every = 2;
                              }});
      ASSERT_TRUE(told.end) << told.end.error().message();
      EXPECT_EQ(told.losses(), plain.losses()) << to_string(config.allocator);
      EXPECT_EQ(told.weights, plain.weights) << to_string(config.allocator);
      ASSERT_EQ(told.evaluations.size(), 3U);
      EXPECT_EQ(told.evaluations[1].after_step, 4);
      EXPECT_EQ(told.evaluations[1].tokens, 5 * 16);  // whatever the number of ranks
    }
}

/// Before anything is learnt much: the evaluation after one step at rate 0 is of the first weights.
TEST(Trainer, AnEvaluationIsOfTheSameSamplesAtEveryWorldSize) {
  const Counting data;
  Counting held_out;
  held_out.size = 20;
  const auto evaluation = [&](const PlanConfig& config) {
    const Told told = train(config, 1, data, {.inputs = [&](TrainInputs& inputs) {
                              inputs.eval_data = &held_out;
                              inputs.settings.learning_rate = {.peak = 0, .minimum = 0};
                              inputs.settings.eval_every = 1;
                              inputs.settings.eval_samples = 7;
                            }});
    return told.evaluations.at(0);
  };
  const EvalReport one = evaluation(nano(1));
  const EvalReport four = evaluation(nano(4));
  EXPECT_EQ(one.tokens, 7 * 16);
  EXPECT_EQ(four.tokens, one.tokens);
  EXPECT_NEAR(four.loss, one.loss, 1e-5);
}

/// All that the trainer leaves to the plan is written before it is read, whenever streams run.
TEST(Trainer, PoisonAndChaosChangeNoBit) {
  const Counting data;
  Counting held_out;
  held_out.size = 3;
  test::Sample sample;
  for (PlanConfig config : all_strategies()) {
    if (!sample.takes_next()) continue;
    config.microbatches = 2;
    const auto evaluate = [&](TrainInputs& inputs) {
      inputs.eval_data = &held_out;
      inputs.settings.eval_every = 2;
    };
    const Told plain = train(config, 3, data, {.inputs = evaluate});
    const Told told = train(config, 3, data, {.inputs = evaluate, .machine = [](auto& settings) {
                                                settings.poison = true;
                                                settings.chaos = 5;
                                              }});
    ASSERT_TRUE(told.end) << told.end.error().message();
    EXPECT_EQ(told.losses(), plain.losses()) << name_of(config);
    EXPECT_EQ(told.evaluations.at(0).loss, plain.evaluations.at(0).loss) << name_of(config);
    EXPECT_EQ(told.weights, plain.weights) << name_of(config);
  }
}

TEST(Trainer, TheStopPointEndsAllRanksAfterOneStep) {
  const Counting data;
  std::atomic<int> asked = 0;
  SharedStopPoint stop([&] { return ++asked > 3; });
  const Told told =
      train(nano(3), 50, data, {.inputs = [&](TrainInputs& inputs) { inputs.stop = &stop; }});
  ASSERT_TRUE(told.end) << told.end.error().message();
  EXPECT_EQ(told.steps.size(), 3U);
  EXPECT_EQ(told.steps_done, (std::vector<std::int64_t>{3, 3, 3}));
}

/// Two of four samples of each step speak; the mean is over their tokens alone.
TEST(Trainer, ARankWithoutAnyLabelAddsNothing) {
  Counting data;
  data.size = 4;  // each step reads all four, in some order
  data.mute = [](std::int64_t sample) { return sample < 2; };
  PlanConfig alone = nano(1);
  alone.microbatches = 4;
  const Told expected = train(alone, 3, data);
  const Told told = train(nano(4), 3, data);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(told.steps.at(i).tokens, 2 * 16);
    EXPECT_NEAR(told.steps.at(i).loss, expected.steps.at(i).loss, 2e-3) << i;
  }
}

TEST(Trainer, AStepWithoutAnyLabelHasNoGradient) {
  Counting data;
  data.mute = [](std::int64_t) { return true; };
  const Told told = train(nano(2), 2, data);
  ASSERT_TRUE(told.end) << told.end.error().message();
  for (const StepReport& step : told.steps) {
    EXPECT_EQ(step.tokens, 0);
    EXPECT_EQ(step.loss, 0);
    EXPECT_EQ(step.grad_norm, 0);
    EXPECT_EQ(step.clip_factor, 1);
    EXPECT_FALSE(step.non_finite);
  }
  // Norm weights do not decay, so that nothing at all moves them.
  for (const float weight : told.weights.at("model.norm.weight")) EXPECT_EQ(weight, 1);
}

TEST(Trainer, ANonFiniteNormSkipsTheUpdateAndIsReported) {
  const Counting data;
  const auto spoilt = [&](std::int64_t steps) {
    return train(nano(2), steps, data, {.before = [](std::int64_t, Trainer& trainer) {
                   test::spoil("model.layers.1.mlp.down_proj.weight", trainer);
                 }});
  };
  const Told once = spoilt(0);
  const Told told = spoilt(2);
  ASSERT_TRUE(told.end) << told.end.error().message();
  EXPECT_TRUE(told.steps.at(0).non_finite);
  EXPECT_TRUE(told.steps.at(1).non_finite);
  const std::vector<float>& before = once.weights.at("model.layers.0.input_layernorm.weight");
  EXPECT_EQ(told.weights.at("model.layers.0.input_layernorm.weight"), before);
  EXPECT_EQ(told.weights.at("model.embed_tokens.weight"),
            once.weights.at("model.embed_tokens.weight"));
}

TEST(Trainer, TheLastStepIsEvaluatedToo) {
  const Counting data;
  Counting held_out;
  held_out.size = 3;
  const auto evaluated = [&](std::int64_t every) {
    const Told told = train(nano(2), 3, data, {.inputs = [&](TrainInputs& inputs) {
                              inputs.eval_data = &held_out;
                              inputs.settings.eval_every = every;
                            }});
    std::vector<std::int64_t> after;
    for (const EvalReport& report : told.evaluations) after.push_back(report.after_step);
    return after;
  };
  EXPECT_THAT(evaluated(10), ElementsAre(3));
  EXPECT_THAT(evaluated(2), ElementsAre(2, 3));
  EXPECT_THAT(evaluated(3), ElementsAre(3));
  EXPECT_THAT(evaluated(0), ElementsAre(3));
}

TEST(Trainer, NormsOfParametersAreThoseOfOneRank) {
  const Counting data;
  PlanConfig alone = nano(1);
  alone.microbatches = 12;
  const auto norms = [](TrainInputs& inputs) {
    inputs.settings.learning_rate = {.peak = 0, .minimum = 0};
    inputs.settings.log_param_norms = 1;
  };
  const Told expected = train(alone, 1, data, {.inputs = norms});
  for (PlanConfig config : all_strategies()) {
    config.microbatches = 12 / config.mesh.world_size();
    const Told told = train(config, 1, data, {.inputs = norms});
    ASSERT_TRUE(told.end) << told.end.error().message();
    const std::vector<ParameterNorm>& got = told.norms.at(1);
    ASSERT_EQ(got.size(), expected.weights.size());
    double sum = 0;
    for (std::size_t p = 0; p < got.size(); ++p) {
      EXPECT_EQ(got[p].name, expected.norms.at(1)[p].name);
      double weight = 0;
      double gradient = 0;
      for (const float w : expected.weights.at(got[p].name)) weight += double{w} * w;
      for (const float g : expected.gradients.at(got[p].name)) gradient += double{g} * g;
      EXPECT_NEAR(got[p].weight, std::sqrt(weight), 1e-6 * std::sqrt(weight)) << got[p].name;
      const double mean = std::sqrt(gradient) / (12 * 16);  // over the tokens of the batch
      EXPECT_NEAR(*got[p].gradient, mean, 1e-5 * mean) << got[p].name << " " << name_of(config);
      sum += *got[p].gradient * *got[p].gradient;
    }
    EXPECT_NEAR(std::sqrt(sum), told.steps.at(0).grad_norm, 1e-5);
  }
}

TEST(Trainer, NormsOfFrozenParametersHaveNoGradient) {
  const Counting data;
  PlanConfig config = nano(2);
  config.frozen = {"embed_tokens"};
  const Told told =
      train(config, 4, data,
            {.inputs = [](TrainInputs& inputs) { inputs.settings.log_param_norms = 2; }});
  ASSERT_TRUE(told.end) << told.end.error().message();
  EXPECT_EQ(told.norms.size(), 3U);  // after steps 1, 2 and 4
  for (const ParameterNorm& norm : told.norms.at(2)) {
    EXPECT_EQ(norm.gradient.has_value(), norm.name != "model.embed_tokens.weight");
    EXPECT_GT(norm.weight, 0) << norm.name;
  }
}

/// Rank 1 fails at the beginning or towards the end of the fourth step, long after the third.
TEST(Trainer, AFailedRunHasToldOfAllStepsThatEnded) {
  const Counting data;
  for (const auto kind : {KernelKind::embedding_forward, KernelKind::norm_partial}) {
    const Told told = train(nano(2), 6, data, {.machine = [&](MachineSettings& settings) {
                              const KernelFunction honest = settings.kernel;
                              settings.kernel = [=](const KernelCall& call) -> Result<void> {
                                if (call.kernel->kind != kind || call.step != 3 || call.rank != 1)
                                  return honest(call);
                                std::this_thread::sleep_for(std::chrono::milliseconds(200));
                                return fail("", "broken");
                              };
                            }});
    ASSERT_FALSE(told.end);
    EXPECT_THAT(told.end.error().message(), AllOf(HasSubstr("rank 1, "), HasSubstr("broken")));
    ASSERT_EQ(told.steps.size(), 3U) << to_string(kind);
    EXPECT_EQ(told.steps.back().step, 3);
  }
}

/// By then the host has issued the next step, and it is notified of the failure before it takes the
/// report. A report that may result from an aborted collective does not count.
TEST(Trainer, AReportThatCameBeforeTheFailureIsDelivered) {
  class Fragile final : public Backend {
   public:
    Fragile(Backend& backend, bool whole) : backend_(backend), whole_(whole) {}
    [[nodiscard]] Result<std::byte*> allocate(const Pool& pool) override {
      return backend_.allocate(pool);
    }
    [[nodiscard]] Result<void> upload(std::span<const std::byte> from, std::byte* device) override {
      return backend_.upload(from, device);
    }
    [[nodiscard]] Result<void> download(const std::byte* device, std::span<std::byte> to) override {
      return backend_.download(device, to);
    }
    [[nodiscard]] Result<void> issue(const BoundOp& op, std::int64_t step) override {
      if (step < 2) return backend_.issue(op, step);
      MFSDP_TRY(backend_.synchronise());
      return fail("", "broken");
    }
    [[nodiscard]] Result<void> record(const BoundOp& op, std::int64_t step,
                                      std::int64_t number) override {
      return backend_.record(op, step, number);
    }
    [[nodiscard]] Result<void> wait(const BoundOp& op, std::int64_t step,
                                    std::int64_t number) override {
      return backend_.wait(op, step, number);
    }
    [[nodiscard]] Result<Nanos> host_wait(const BoundOp& op, std::int64_t step, std::size_t event,
                                          std::int64_t number) override {
      return backend_.host_wait(op, step, event, number);
    }
    [[nodiscard]] bool ran_whole(std::size_t, std::int64_t) const override { return whole_; }
    [[nodiscard]] Nanos now() const override { return backend_.now(); }
    [[nodiscard]] Result<void> synchronise() override { return backend_.synchronise(); }
    [[nodiscard]] std::vector<OpTiming> take_timings() override { return {}; }

   private:
    Backend& backend_;
    bool whole_;
  };
  const Counting data;
  for (const bool whole : {true, false}) {
    const Told told = train(nano(1), 5, data, {.backend = [whole](Backend& backend) {
                              return std::make_unique<Fragile>(backend, whole);
                            }});
    ASSERT_FALSE(told.end);
    EXPECT_EQ(told.end.error().message(), "rank 0: broken");
    EXPECT_EQ(told.steps.size(), whole ? 2U : 1U);
  }
}

TEST(Trainer, AnUnreadableSampleEndsTheRunWithItsPlace) {
  class Broken final : public Dataset {
   public:
    [[nodiscard]] std::string describe() const override { return "broken"; }
    [[nodiscard]] std::int64_t samples() const override { return 8; }
    [[nodiscard]] std::optional<double> unigram_entropy() const override { return {}; }
    [[nodiscard]] Result<void> read(std::int64_t index, const SampleSpans& out) const override {
      if (index == 5) return fail("data.bin, token 80", "expected ids from 0 to 263, got 999");
      return Counting().read(index, out);
    }
  };
  const Told told = train(nano(2), 10, Broken());
  ASSERT_FALSE(told.end);
  EXPECT_THAT(told.end.error().message(),
              HasSubstr("data.bin, token 80: expected ids from 0 to 263, got 999"));
  EXPECT_EQ(told.end.error().fault, Fault::input);
  EXPECT_LT(told.steps.size(), 4U);  // 8 samples are read in 4 steps
}

}  // namespace
}  // namespace mfsdp
