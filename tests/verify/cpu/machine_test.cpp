// A run that fails ends in time, with one error for all ranks.
#include "verify/cpu/machine/machine.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/support/machine_run.hpp"

namespace mfsdp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kShort{300};

/// The first op of the train plan that holds `Body` and whose name ends so.
template <class Body>
Op& find_op(Program& program, std::string_view ending) {
  for (Segment& segment : program.plans.front().segments)
    for (Op& op : segment.ops)
      if (std::holds_alternative<Body>(op.body) && op.name.ends_with(ending)) return op;
  throw std::out_of_range(std::string(ending));
}

/// Runs `program` on all ranks but the last, which runs `other`.
Result<void> run_two(const Program& program, const Program& other, MachineSettings settings) {
  Machine machine(program, std::move(settings));
  const std::int64_t last = program.config.mesh.world_size() - 1;
  return machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    MFSDP_TRY(test::run_rank(rank == last ? other : program, rank, backend, {{"train", 2}}));
    return {};
  });
}

TEST(Machine, AllocatesThePlansPoolsOnEveryRank) {
  const Program program = test::built(test::small_config(2));
  std::vector<Bytes> heights;
  for (const Pool& pool : program.pools) heights.push_back(pool.height);
  Machine machine(program, test::hashing());
  ASSERT_TRUE(machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    MFSDP_TRY(test::run_rank(program, rank, backend, {{"train", 1}}));
    return {};
  }));
  EXPECT_EQ(machine.allocated(0), heights);
  EXPECT_EQ(machine.allocated(1), heights);
}

TEST(Machine, EvaluatingChangesNothingThatTrainingLeaves) {
  const Program program = test::built(test::small_config(2));
  const auto weights = [&](const test::Itinerary& itinerary) {
    std::vector<std::uint64_t> hashes(2);
    Machine machine(program, test::hashing());
    const auto outcome = machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
      MFSDP_LET(interpreter, Interpreter::create(program, backend, rank));
      test::fill_state(program, *interpreter, rank);
      for (const auto& [plan, steps] : itinerary) MFSDP_TRY(interpreter->run(plan, steps));
      MFSDP_TRY(interpreter->finish());
      test::for_each_state_value(
          program, *interpreter, [&](const Buffer& buffer, const std::byte* value, std::size_t) {
            if (buffer.category != Category::model_weight) return;
            hashes[static_cast<std::size_t>(rank)] = test::mix(
                hashes[static_cast<std::size_t>(rank)], static_cast<std::uint64_t>(*value));
          });
      return {};
    });
    EXPECT_TRUE(outcome) << outcome.error().message();
    return hashes;
  };
  EXPECT_EQ(weights({{"train", 2}, {"eval", 2}, {"train", 1}, {"eval", 1}}),
            weights({{"train", 3}}));
}

TEST(Machine, AnUnknownPlanIsAnError) {
  const Program program = test::built(test::small_config(1));
  const auto states = test::run_program(program, test::hashing(), {{"trian", 1}});
  ASSERT_FALSE(states);
  EXPECT_EQ(states.error().message(), "rank 0, plan: there is no plan \"trian\" in the program");
}

TEST(Machine, CollectivesThatDifferInCountEndTheRun) {
  const Program program = test::built(test::small_config(2));
  Program other = program;
  Op& op = find_op<Collective>(other, ".reduce_scatter");
  auto& collective = std::get<Collective>(op.body);
  const std::int64_t count = collective.count;
  collective.count /= 2;
  collective.input.shape[0] /= 2;
  collective.output.shape[0] /= 2;
  const auto outcome = run_two(program, other, test::hashing());
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().fault, Fault::environment);
  EXPECT_THAT(
      outcome.error().message(),
      AllOf(HasSubstr("collectives differ on communicator reduce_scatter"),
            HasSubstr(fmt::format("rank 0 at {} has reduce_scatter of {} fp32", op.name, count)),
            HasSubstr(
                fmt::format("rank 1 at {} has reduce_scatter of {} fp32", op.name, count / 2))));
}

TEST(Machine, CollectivesOfDifferentKindsEndTheRun) {
  PlanConfig config = test::small_config(2);
  config.strategy = Strategy::no_shard;
  const Program program = test::built(config);
  Program other = program;
  Op& op = find_op<Collective>(other, ".all_reduce");
  auto& collective = std::get<Collective>(op.body);
  collective.kind = CollectiveKind::reduce_scatter;
  collective.count /= 2;
  collective.output.shape[0] /= 2;
  const auto outcome = run_two(program, other, test::hashing());
  ASSERT_FALSE(outcome);
  EXPECT_THAT(outcome.error().message(),
              AllOf(HasSubstr("rank 0 at " + op.name + " has all_reduce"),
                    HasSubstr("rank 1 at " + op.name + " has reduce_scatter")));
}

TEST(Machine, ACollectiveThatOneRankLeavesOutMeetsTheDeadline) {
  const Program program = test::built(test::small_config(2));
  Program other = program;
  for (Segment& segment : other.plans.front().segments)
    std::erase_if(segment.ops, [](const Op& op) {
      return op.name == "norm.all_gather" && op.kind() == OpKind::collective;
    });
  MachineSettings settings = test::hashing();
  settings.deadline = kShort;
  const auto outcome = run_two(program, other, settings);
  ASSERT_FALSE(outcome);
  // In the second step the loss is gathered where the norm is missing.
  EXPECT_THAT(outcome.error().message(), HasSubstr("norm.all_gather"));
}

TEST(Machine, AKernelThatThrowsEndsTheRunWithItsName) {
  Program program = test::built(test::small_config(4));
  MachineSettings settings = test::hashing();
  settings.kernel = [](const KernelCall& call) -> Result<void> {
    if (call.rank == 2 && call.step == 1 && call.kernel->kind == KernelKind::norm_finish)
      throw std::runtime_error("out of patience");
    return test::hash_kernel(call);
  };
  const auto states = test::run_program(program, settings);
  ASSERT_FALSE(states);
  EXPECT_EQ(states.error().message(), "rank 2, norm.finish (outer), step 2: out of patience");
  EXPECT_EQ(states.error().fault, Fault::environment);
}

TEST(Machine, ARankThatStopsIsNamedWithThoseThatWaitForIt) {
  Program program = test::built(test::small_config(4));
  const Op& op = find_op<Kernel>(program, ".adamw");
  MachineSettings settings = test::hashing();
  settings.deadline = kShort;
  settings.faults.fault = {.kind = InjectedFault::Kind::stop, .rank = 3, .op = op.id, .step = 0};
  const auto states = test::run_program(program, settings);
  ASSERT_FALSE(states);
  EXPECT_THAT(states.error().message(),
              AllOf(HasSubstr("no op ended for 0.3 s: rank 3, " + op.name +
                              " (compute), step 1 does not end"),
                    HasSubstr("waits for rank 3"), HasSubstr("rank 0, ")));
}

TEST(Machine, ARankThatMiscountsIsNamedWithTheOther) {
  Program program = test::built(test::small_config(2));
  const Op& op = find_op<Collective>(program, ".reduce_scatter");
  MachineSettings settings = test::hashing();
  settings.faults.fault = {
      .kind = InjectedFault::Kind::miscount, .rank = 1, .op = op.id, .step = 1};
  const auto states = test::run_program(program, settings);
  ASSERT_FALSE(states);
  EXPECT_THAT(states.error().message(),
              AllOf(HasSubstr("collectives differ on communicator reduce_scatter"),
                    HasSubstr("step 2"), HasSubstr("rank 0"), HasSubstr("rank 1")));
}

TEST(Machine, AHostThatIsBusyForLongIsNotStuck) {
  const Program program = test::built(test::small_config(2));
  MachineSettings settings = test::hashing();
  settings.deadline = kShort;
  Machine machine(program, settings);
  const auto outcome = machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    // Rank 1 has issued its steps by then, and waits for rank 0.
    if (rank == 0) std::this_thread::sleep_for(3 * kShort);
    MFSDP_TRY(test::run_rank(program, rank, backend, {{"train", 2}}));
    return {};
  });
  EXPECT_TRUE(outcome) << outcome.error().message();
}

TEST(Machine, AHostThatGivesUpEndsTheOthers) {
  const Program program = test::built(test::small_config(2));
  Machine machine(program, test::hashing());
  const auto outcome = machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    if (rank == 1) return fail("data", "is empty");
    MFSDP_TRY(test::run_rank(program, rank, backend, {{"train", 2}}));
    return {};
  });
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message(), "rank 1, data: is empty");
  EXPECT_EQ(outcome.error().fault, Fault::input);
}

TEST(Machine, TimesEveryOpOfTheLastStepsInTheOrderOfIssue) {
  const Program program = test::built(test::small_config(2));
  MachineSettings settings = test::hashing();
  settings.timed_steps = 2;
  Machine machine(program, settings);
  std::int64_t ops = 0;
  for (const Segment& segment : program.plans.front().segments) ops += std::ssize(segment.ops);
  const auto outcome = machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    MFSDP_LET(interpreter, Interpreter::create(program, backend, rank));
    MFSDP_TRY(interpreter->run("train", 3));
    MFSDP_TRY(interpreter->run("eval", 9));  // its steps are no steps of training
    MFSDP_TRY(interpreter->finish());
    const std::vector<OpTiming> timings = backend.take_timings();
    EXPECT_TRUE(backend.take_timings().empty());
    EXPECT_EQ(std::ssize(timings), 2 * ops);
    EXPECT_TRUE(std::ranges::is_sorted(timings, {}, &OpTiming::issued));
    for (const OpTiming& timing : timings) {
      EXPECT_GE(timing.step, 1);
      EXPECT_LE(timing.issued, timing.begin);
      EXPECT_LE(timing.begin, timing.end);
      EXPECT_EQ(timing.stream.has_value(), timing.op->op->kind() != OpKind::host_wait);
    }
    return {};
  });
  ASSERT_TRUE(outcome) << outcome.error().message();
}

}  // namespace
}  // namespace mfsdp
