// Jobs of several classes of ranks: pipelines whose bubble and memory are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/plan/peak_memory.hpp"
#include "tests/sim/timed_plan.hpp"

namespace mfsdp {
namespace {

using test::Tiny;
using testing::Each;
using testing::HasSubstr;

constexpr std::int64_t kForward = 100;
constexpr std::int64_t kBackward = 200;
constexpr std::int64_t kActivation = 1000;

struct Pipeline {
  std::int64_t stages = 4;
  std::int64_t microbatches = 8;
  std::int64_t message = 0;   ///< ns of a send
  std::int64_t spare = 0;     ///< instances of activations beyond those in flight
  std::int64_t replicas = 1;  ///< ranks of dp_shard in each stage
  std::int64_t slow_stage = -1;
};

/// One stage of 1F1B. All ops are on the compute stream; neighbours exchange in one launch:
///
///   warm_up x w  {recv} F {send}                       w = stages - 1 - stage
///   first        {recv} F {send, recv gradient} B
///   steady       {send gradient, recv} F {send, recv gradient} B
///   drain        {send gradient}, then w times {recv gradient} B {send gradient}
class StagePlan : public Tiny {
 public:
  StagePlan(const Pipeline& pipeline, std::int64_t stage)
      : pipeline_(pipeline),
        stage_(stage),
        ahead_(pipeline.stages - 1 - stage),
        is_first_(stage == 0),
        is_last_(ahead_ == 0) {
    program.config.mesh = {.dense = {{.axis = Axis::pp, .size = pipeline.stages}}};
    program.config.mesh.resize(Axis::dp_shard, pipeline.replicas);
    program.communicators[0].axes = {Axis::pp};
    program.communicators[0].size = pipeline.stages;
    program.communicators[1].axes = {Axis::dp_shard};
    program.communicators[1].size = pipeline.replicas;
    program.communicators[2].axes = {};
    program.communicators[2].size = 1;
    program.classes = {{.role = "stage_" + std::to_string(stage),
                        .ranks = pipeline.replicas,
                        .at = {{.axis = Axis::pp, .index = stage}}}};
    buffer(kActivation, Category::activation);
    const std::int64_t instances = ahead_ + 1 + pipeline.spare;
    if (instances > 1) program.buffers[0].instances = instances;
    segments();
  }

 private:
  void segments() {
    if (ahead_ > 0) {
      add("warm_up", 1, ahead_);
      forward(false);
      exchange({{send(1), !is_last_}});
    }
    add("first", 1);
    pair(false);
    if (const std::int64_t rest = pipeline_.microbatches - ahead_ - 1; rest > 0) {
      add("steady", 1, rest);
      pair(true);
    }
    add("drain", 0);
    exchange({{send(-1), !is_first_}});
    for (std::int64_t lag = ahead_ - 1; lag >= 0; --lag) {
      exchange({{recv(1), !is_last_}});
      backward(lag);
      exchange({{send(-1), !is_first_}});
    }
    if (is_first_ && is_last_) kernel(0);  // an empty segment has nothing to simulate
  }

  void pair(bool sends_gradient) {
    forward(sends_gradient);
    exchange({{send(1), !is_last_}, {recv(1), !is_last_}});
    backward(ahead_);
  }

  void forward(bool sends_gradient) {
    exchange({{send(-1), sends_gradient && !is_first_}, {recv(-1), !is_first_}});
    acquire(test::kCompute, 0);
    kernel(kForward * factor(), "forward");
  }

  void backward(std::int64_t lag) {
    kernel(kBackward * factor(), "backward");
    release(test::kCompute, 0);
    plan().segments.back().ops.back().lag = lag;
  }

  [[nodiscard]] std::int64_t factor() const { return stage_ == pipeline_.slow_stage ? 2 : 1; }

  void add(const std::string& name, std::int64_t microbatches, std::int64_t repeat = 1) {
    segment(name, repeat);
    plan().segments.back().microbatches = microbatches;
  }

  [[nodiscard]] Collective send(std::int64_t step) const {
    return message(CollectiveKind::send, step);
  }
  [[nodiscard]] Collective recv(std::int64_t step) const {
    return message(CollectiveKind::recv, step);
  }
  [[nodiscard]] Collective message(CollectiveKind kind, std::int64_t step) const {
    Collective body;
    body.kind = kind;
    body.count = pipeline_.message;
    body.peer = {.axis = Axis::pp, .step = step};
    return body;
  }

  /// One launch of those of the messages that there are.
  void exchange(const std::vector<std::pair<Collective, bool>>& messages) {
    if (std::ranges::none_of(messages, [](const auto& message) { return message.second; })) return;
    op(test::kCompute, "exchange", GroupBegin{});
    for (const auto& [message, is_there] : messages)
      if (is_there) op(test::kCompute, std::string(to_string(message.kind)), message);
    op(test::kCompute, "exchange", GroupEnd{});
  }

  Pipeline pipeline_;
  std::int64_t stage_;
  std::int64_t ahead_;
  bool is_first_;
  bool is_last_;
};

std::vector<Program> stages_of(const Pipeline& pipeline) {
  std::vector<Program> programs;
  for (std::int64_t stage = 0; stage < pipeline.stages; ++stage)
    programs.push_back(StagePlan(pipeline, stage).program);
  return programs;
}

Result<Simulation> simulated_stages(const std::vector<Program>& programs,
                                    const RankVariation& variation = {},
                                    std::size_t memory_class = 0) {
  std::vector<SimulatedPlan> classes;
  for (const Program& program : programs)
    classes.push_back(
        {.program = &program, .plan = &program.plans[0], .prices = test::tiny_prices()});
  return simulate(classes, variation, {.memory_class = memory_class});
}

std::vector<std::int64_t> idle_times(const Simulation& simulation) {
  std::vector<std::int64_t> times;
  for (const ClassTimes& one : simulation.classes) times.push_back(one.time.idle.value);
  return times;
}

TEST(Pipeline, EqualStagesAndFreeLinksHaveTheBubbleOfOneForwardOneBackward) {
  for (const auto& [stages, microbatches] : {std::pair(2, 4), std::pair(4, 8), std::pair(5, 5)}) {
    const auto result =
        simulated_stages(stages_of({.stages = stages, .microbatches = microbatches}));
    ASSERT_TRUE(result.has_value()) << result.error().message();
    // (p - 1) / (m + p - 1) of the step, on every stage.
    const std::int64_t unit = kForward + kBackward;
    EXPECT_EQ(result->time.step, Nanos((microbatches + stages - 1) * unit));
    EXPECT_EQ(result->time.compute, Nanos(microbatches * unit));
    EXPECT_THAT(idle_times(*result), Each((stages - 1) * unit));
  }
}

TEST(Pipeline, AStageHoldsTheActivationsOfTheMicrobatchesInFlight) {
  const std::vector<Program> programs = stages_of({.stages = 4, .microbatches = 8});
  for (std::size_t stage = 0; stage < programs.size(); ++stage) {
    const auto in_flight = static_cast<std::int64_t>(programs.size() - stage);  // p - s
    const auto result = simulated_stages(programs, {}, stage);
    ASSERT_TRUE(result.has_value()) << result.error().message();
    Bytes most;
    for (const MemoryPoint& point : result->memory_timeline)
      most = std::max(most, sum_of(point.categories));
    EXPECT_EQ(most, Bytes(in_flight * kActivation)) << stage;
    const auto lifetimes = buffer_lifetimes(programs[stage], programs[stage].plans[0]);
    ASSERT_TRUE(lifetimes.has_value()) << lifetimes.error().message();
    EXPECT_EQ(sum_of(peak_memory(programs[stage], *lifetimes)), Bytes(in_flight * kActivation));
  }
}

TEST(Pipeline, OneInstanceTooFewIsAnError) {
  const auto result = simulated_stages(stages_of({.stages = 4, .microbatches = 8, .spare = -1}));
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(result.error().message(), HasSubstr("buffer 'b0' is acquired while it is live"));
}

TEST(Pipeline, MessagesAreExposedAndCountTheirBytes) {
  // Two stages, two microbatches. On the first one: F, send, F, send beside recv, B, recv, B.
  const auto result = simulated_stages(stages_of({.stages = 2, .microbatches = 2, .message = 30}));
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->time.step, Nanos(3 * (kForward + kBackward) + 3 * 30));
  for (const ClassTimes& one : result->classes) {
    EXPECT_EQ(one.time.exposed_communication, Nanos(3 * 30));
    EXPECT_EQ(one.time.idle, Nanos(kForward + kBackward));
    EXPECT_EQ(one.traffic.sends, Bytes(2 * 2 * 30));  // two of 30 bf16
  }
}

TEST(Pipeline, TheSlowestStageIsReportedAndOthersWaitForIt) {
  const auto result =
      simulated_stages(stages_of({.stages = 4, .microbatches = 64, .slow_stage = 2}), {}, 1);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->reported_class, 2);
  EXPECT_EQ(result->ranks.reported, 2);
  const std::vector<std::int64_t> idle = idle_times(*result);
  EXPECT_EQ(std::ranges::min_element(idle) - idle.begin(), 2);
  EXPECT_FALSE(result->memory_ops.empty());  // of stage 1
}

TEST(Pipeline, EqualRanksOfAStageAreSimulatedOnce) {
  const std::vector<Program> programs =
      stages_of({.stages = 4, .microbatches = 8, .message = 30, .replicas = 4});
  const auto once = simulated_stages(programs);
  const auto each = simulated_stages(programs, {.by_rank = true});
  ASSERT_TRUE(once.has_value() && each.has_value());
  EXPECT_EQ(once->ranks.simulated, 4);
  EXPECT_EQ(each->ranks.simulated, 16);
  EXPECT_EQ(idle_times(*once), idle_times(*each));
  // A slow rank slows its own pipeline down: the ranks of each stage at its place differ.
  const auto slow = simulated_stages(programs, {.slow = {{.rank = 5, .factor = {2, 1}}}});
  ASSERT_TRUE(slow.has_value());
  EXPECT_EQ(slow->ranks.simulated, 8);
  EXPECT_GT(slow->time.step, once->time.step);
}

TEST(Pipeline, StagesThatWaitForEachOtherAreADeadlock) {
  std::vector<Program> programs = stages_of({.stages = 2, .microbatches = 4});
  programs[1].plans[0].segments.pop_back();  // the last gradient is never sent
  const auto result = simulated_stages(programs);
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(result.error().message(), HasSubstr("deadlock"));
  EXPECT_THAT(result.error().message(), HasSubstr("waits for other ranks for ever"));
}

TEST(Pipeline, AMessageOfAnotherSizeIsAnError) {
  std::vector<Program> programs = stages_of({.stages = 2, .microbatches = 4, .message = 30});
  for (Segment& segment : programs[1].plans[0].segments)
    for (Op& op : segment.ops)
      if (auto* collective = std::get_if<Collective>(&op.body))
        if (collective->kind == CollectiveKind::recv) collective->count = 20;
  const auto result = simulated_stages(programs);
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(result.error().message(), HasSubstr("it receives 40 bytes of a message of 60 bytes"));
}

TEST(Pipeline, AStageWithoutTheRankThatItSendsToIsAnError) {
  std::vector<Program> programs = stages_of({.stages = 2, .microbatches = 4});
  for (Segment& segment : programs[1].plans[0].segments)
    for (Op& op : segment.ops)
      if (auto* collective = std::get_if<Collective>(&op.body)) collective->peer->step = 1;
  const auto result = simulated_stages(programs);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message(),
            "class 'stage_1': its sends and receives need a peer 1 ranks further along pp, which "
            "not all of its ranks have");
}

/// An event with two instances: the wait of microbatch k is for the record of k - 2, not of k - 1.
TEST(Pipeline, AnEventWithInstancesIsWaitedForByTurn) {
  Tiny tiny;
  tiny.program.events[0].instances = 2;
  tiny.segment("steady", 6).wait(test::kCompute, 0, 1).kernel(10).record(test::kCompute, 1);
  tiny.plan().segments.back().microbatches = 1;
  tiny.wait(test::kGather, 1).kernel(100, "slow", test::kGather).record(test::kGather, 0);
  const auto two = simulate(tiny);
  ASSERT_TRUE(two.has_value()) << two.error().message();
  // The other stream is the longer one: 6 x 100 ns, with compute up to two microbatches ahead.
  EXPECT_EQ(two->time.step, Nanos(600));
  tiny.program.events[0].instances.reset();
  const auto one = simulate(tiny);
  ASSERT_TRUE(one.has_value()) << one.error().message();
  EXPECT_EQ(one->time.step, Nanos(6 * 110));  // one after the other
}

}  // namespace
}  // namespace mfsdp
