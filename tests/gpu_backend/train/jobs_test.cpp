// Jobs of several classes of ranks, by the pipelines that are shipped: their results are those of one
// rank, bit by bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plan/instances.hpp"
#include "core/plan/work.hpp"
#include "core/schedule/build.hpp"
#include "core/schedule/exact_sums.hpp"
#include "tests/gpu_backend/train/training.hpp"
#include "tests/support/pipeline.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kJobSteps = 3;

/// Random-looking tokens: all of the vocabulary, and other ones in each sample.
test::Counting job_data() {
  test::Counting data;
  data.vocab = 64;
  data.mute = [](std::int64_t sample) { return sample == 2; };  // microbatches differ in tokens
  return data;
}

/// With norms of parameters and all checks, which ask for values of other classes.
test::Twist with_all_reports(std::optional<std::uint64_t> chaos = std::nullopt) {
  return {.inputs =
              [](TrainInputs& inputs) {
                inputs.settings.log_param_norms = 1;
                inputs.settings.check_nan = true;
              },
          .machine =
              [chaos](MachineSettings& settings) {
                settings.chaos = chaos;
                settings.poison = chaos.has_value();
              }};
}

/// The model of a pipeline on one rank, as the planner makes it.
Program on_one_rank(PlanConfig config) {
  config.microbatches *= data_ranks(config.mesh);
  config.mesh = {};
  config.schedule = PipelineSchedule::one_f_one_b;
  config.virtual_stages = config.microbatch_group = 0;
  config.layers_of_stages.clear();
  config.outer_strategy = Strategy::no_shard;
  return build_program(config, {}).value();
}

Job with_exact_sums(Job job) {
  for (Program& program : job.programs) {
    program.config.exact_sums = true;
    schedule::mark_exact_sums(program);
  }
  return job;
}

void expect_same_bits(const test::Weights& expected, const test::Weights& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (const auto& [name, values] : expected) {
    const std::vector<float>& others = found.at(name);
    EXPECT_TRUE(std::ranges::equal(values, others, test::same_bits)) << name;
  }
}

/// Ranks with other samples add up the reported loss in another order, and ranks with parts of a
/// parameter its reported norms.
enum class Losses { same, alike };

void expect_number(double expected, double found, Losses losses) {
  if (losses == Losses::same)
    EXPECT_EQ(expected, found);
  else
    EXPECT_FLOAT_EQ(static_cast<float>(expected), static_cast<float>(found));
}

void expect_same_run(const test::Told& expected, const test::Told& found,
                     Losses losses = Losses::same) {
  ASSERT_TRUE(expected.end) << expected.end.error().message();
  ASSERT_TRUE(found.end) << found.end.error().message();
  EXPECT_TRUE(found.allocated_as_planned);
  EXPECT_TRUE(found.torn.empty());
  ASSERT_EQ(found.steps.size(), static_cast<std::size_t>(kJobSteps));
  for (std::size_t i = 0; i < found.steps.size(); ++i) {
    expect_number(expected.steps[i].loss, found.steps[i].loss, losses);
    EXPECT_EQ(expected.steps[i].tokens, found.steps[i].tokens);
    EXPECT_EQ(expected.steps[i].grad_norm, found.steps[i].grad_norm);
    EXPECT_EQ(expected.steps[i].clip_factor, found.steps[i].clip_factor);
  }
  expect_same_bits(expected.weights, found.weights);
  expect_same_bits(expected.computed, found.computed);
  expect_same_bits(expected.gradients, found.gradients);
  ASSERT_EQ(expected.norms.size(), found.norms.size());
  for (const auto& [step, norms] : expected.norms)
    for (std::size_t p = 0; p < norms.size(); ++p) {
      EXPECT_EQ(norms[p].name, found.norms.at(step).at(p).name);
      expect_number(norms[p].weight, found.norms.at(step).at(p).weight, losses);
      const std::optional<double> gradient = found.norms.at(step).at(p).gradient;
      ASSERT_EQ(norms[p].gradient.has_value(), gradient.has_value());
      expect_number(norms[p].gradient.value_or(0), gradient.value_or(0), losses);
    }
}

/// Without delays and with them.
void expect_to_train_as_one_rank(const Job& job, Losses losses = Losses::same) {
  const test::Counting data = job_data();
  const Program whole = on_one_rank(job.programs[0].config);
  const auto expected = test::train(whole, kJobSteps, data, with_all_reports());
  expect_same_run(expected, test::train(job.programs, kJobSteps, data, with_all_reports()), losses);
  expect_same_run(expected, test::train(job.programs, kJobSteps, data, with_all_reports(1)),
                  losses);
}

TEST(JobsOfStages, TwoStagesTrainAsOneRank) { expect_to_train_as_one_rank(test::pipeline()); }

TEST(JobsOfStages, TwoStagesTrainAsOneRankWithExactSums) {
  expect_to_train_as_one_rank(with_exact_sums(test::pipeline()));
}

TEST(JobsOfStages, TwoRanksOfEachStageTrainAsOneRankWithExactSums) {
  expect_to_train_as_one_rank(with_exact_sums(test::pipeline("1f1b_2x4_dp2.json")), Losses::alike);
}

TEST(JobsOfStages, FourStagesTrainAsOneRankWithExactSums) {
  expect_to_train_as_one_rank(with_exact_sums(test::pipeline("1f1b_4x8.json")));
}

/// Each stage has two chunks: the last stage sends activations to the first, and the first one
/// gradients to the last.
TEST(JobsOfStages, InterleavedStagesTrainAsOneRank) {
  expect_to_train_as_one_rank(test::pipeline("interleaved_2x2x4.json"));
}

/// Weight gradients wait for the bubble, with what they read.
TEST(JobsOfStages, LateWeightGradientsAreThoseOfOneRank) {
  expect_to_train_as_one_rank(test::pipeline("zero_bubble_2x4.json"));
}

/// Each segment calls its ops as a pass, with the lag that all of them have.
Job with_passes(Job job) {
  for (Program& program : job.programs)
    for (Plan& plan : program.plans)
      for (Segment& segment : plan.segments) {
        const PassId id(plan.passes.size());
        const std::int64_t lag = std::ranges::min(segment.ops, {}, &Op::lag).lag;
        for (Op& op : segment.ops) op.lag -= lag;
        segment.calls = {{.pass = id, .lag = lag}};
        plan.passes.push_back(
            {.id = id, .name = segment.name, .ops = std::exchange(segment.ops, {})});
      }
  return job;
}

TEST(JobsOfStages, PassesRunAsTheOpsOfSegments) {
  const test::Counting data = job_data();
  const Job job = test::pipeline("interleaved_2x2x4.json");
  expect_same_run(test::train(job.programs, kJobSteps, data, with_all_reports()),
                  test::train(with_passes(job).programs, kJobSteps, data, with_all_reports(1)));
}

/// Four blocks and exact sums, as the planner divides them.
Job planned_stages(std::int64_t stages, std::int64_t sharing, Strategy strategy,
                   const std::function<void(PlanConfig&)>& edit = {}) {
  PlanConfig config = test::pipeline("1f1b_4x8.json").programs[0].config;
  config.mesh = data_parallel_mesh(1, sharing);
  config.mesh.resize(Axis::pp, stages);
  config.strategy = strategy;
  config.microbatches = 4;
  config.exact_sums = true;
  config.logits_chunk = config.seq_len;
  if (edit) edit(config);
  return build_job(config, {}).value();
}

TEST(PlannedStages, TrainAsOneRank) {
  expect_to_train_as_one_rank(planned_stages(2, 1, Strategy::no_shard));
}

TEST(PlannedStages, ShardStateInStages) {
  expect_to_train_as_one_rank(planned_stages(2, 2, Strategy::optim), Losses::alike);
}

TEST(PlannedStages, ReduceGradientsOfEachMicrobatch) {
  expect_to_train_as_one_rank(planned_stages(4, 2, Strategy::optim_grads,
                                             [](PlanConfig& config) {
                                               config.schedule = PipelineSchedule::gpipe;
                                               config.recompute.kind = Recompute::full;
                                             }),
                              Losses::alike);
}

TEST(PlannedStages, GatherWeightsInEachPass) {
  expect_to_train_as_one_rank(planned_stages(2, 2, Strategy::optim_grads_params,
                                             [](PlanConfig& config) {
                                               config.mesh.resize(Axis::dp_outer, 2);
                                               config.microbatches = 2;
                                               config.layers_of_stages = {1, 3};
                                             }),
                              Losses::alike);
}

/// Chunks share the memory of gathered weights and of full gradients; each has activations of its own.
TEST(PlannedStages, InterleaveChunks) {
  expect_to_train_as_one_rank(planned_stages(2, 2, Strategy::optim_grads_params,
                                             [](PlanConfig& config) {
                                               config.schedule = PipelineSchedule::interleaved;
                                               config.virtual_stages = 2;
                                               config.document_mask = true;
                                             }),
                              Losses::alike);
}

TEST(PlannedStages, DelayWeightGradients) {
  expect_to_train_as_one_rank(planned_stages(
      4, 1, Strategy::no_shard,
      [](PlanConfig& config) { config.schedule = PipelineSchedule::zb_h1; }));
}

/// A rank that works on another microbatch's activations changes results: the comparison sees it.
TEST(JobsOfStages, AWrongLagShows) {
  const test::Counting data = job_data();
  Job job = test::pipeline("zero_bubble_2x4.json");
  const auto expected = test::train(job.programs, kJobSteps, data);
  for (Op& op : ops_of(job.programs[0].plans[0]))
    if (op.name == "layers.0.down.wgrad") op.lag = 0;
  const auto found = test::train(job.programs, kJobSteps, data);
  ASSERT_TRUE(found.end) << found.end.error().message();
  EXPECT_NE(expected.gradients.at("model.layers.0.mlp.down_proj.weight"),
            found.gradients.at("model.layers.0.mlp.down_proj.weight"));
}

TEST(JobsOfStages, AGroupThatNoClassHoldsIsAnError) {
  Job job = test::pipeline();
  std::erase_if(job.programs[0].buffers,
                [](const Buffer& buffer) { return buffer.name == "embedding.model_weight"; });
  const auto found =
      find_parameters(job.programs, [](BufferId) { return std::span<std::byte>(); }, 1);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message(), "plan, group 0, weights: there is no such buffer");
}

}  // namespace
}  // namespace mfsdp
