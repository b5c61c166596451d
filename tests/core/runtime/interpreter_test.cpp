// The interpreter's calls to a backend, as text: one line for each call.
#include "core/runtime/interpreter.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/idle_backend.hpp"
#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Keeps a diary; runs nothing.
class Diary final : public test::IdleBackend {
 public:
  Result<void> issue(const BoundOp& op, std::int64_t step) override {
    return write("{} {} {}", step, to_string(op.op->kind()), op.op->name);
  }
  Result<void> record(const BoundOp&, std::int64_t step, std::int64_t number) override {
    return write("{} record {}", step, number);
  }
  Result<void> wait(const BoundOp&, std::int64_t step, std::int64_t number) override {
    return write("{} wait {}", step, number);
  }
  Result<Nanos> host_wait(const BoundOp& op, std::int64_t step, std::size_t,
                          std::int64_t number) override {
    MFSDP_TRY(write("{} host {} {}", step, op.op->name, number));
    return Nanos(100 + number);
  }
  Result<void> synchronise() override { return write("synchronise"); }

  template <class... Words>
  Result<void> write(fmt::format_string<Words...> line, Words&&... words) {
    lines.push_back(fmt::format(line, std::forward<Words>(words)...));
    return {};
  }

  std::vector<std::string> lines;
};

Op op(std::size_t id, std::string name, OpBody body) {
  Op made;
  made.id = OpId(id);
  made.name = std::move(name);
  made.body = std::move(body);
  return made;
}

/// One stream, one event; per step: wait for the last step's record, a kernel, a record.
Program looping_program() {
  Program program = test::tiny_program();
  Kernel kernel;
  kernel.kind = KernelKind::cast;
  const Segment segment{
      .name = "only",
      .repeat = 1,
      .ops = {op(0, "before", Wait{.event = EventId(0), .bindings = {{OpId(2), 1}}}),
              op(1, "work", kernel), op(2, "after", Record{.event = EventId(0)})},
      .live_in = {},
      .live_out = {}};
  program.plans = {{.name = "train", .segments = {segment}},
                   {.name = "eval", .segments = {segment}}};
  return program;
}

TEST(Interpreter, WaitsForTheLatestRecordAndForNoneInTheFirstStep) {
  const Program program = looping_program();
  Diary diary;
  auto interpreter = Interpreter::create(program, diary, 0).value();
  ASSERT_TRUE(interpreter->run("train", 3));
  EXPECT_THAT(diary.lines,
              ElementsAre("synchronise", "0 kernel work", "0 record 1", "1 wait 1", "1 kernel work",
                          "1 record 2", "2 wait 2", "2 kernel work", "2 record 3"));
}

TEST(Interpreter, SynchronisesBetweenPlansAndForgetsRecords) {
  const Program program = looping_program();
  Diary diary;
  auto interpreter = Interpreter::create(program, diary, 0).value();
  ASSERT_TRUE(interpreter->run("train"));
  ASSERT_TRUE(interpreter->run("eval"));
  ASSERT_TRUE(interpreter->run("train"));
  // Record numbers go on over the run; steps are each plan's own.
  EXPECT_THAT(diary.lines, ElementsAre("synchronise", "0 kernel work", "0 record 1", "synchronise",
                                       "0 kernel work", "0 record 2", "synchronise",
                                       "1 kernel work", "1 record 3"));
}

TEST(Interpreter, RepeatsMiddleSegments) {
  Program program = looping_program();
  program.plans[0].segments[0].repeat = 2;
  Diary diary;
  auto interpreter = Interpreter::create(program, diary, 0).value();
  ASSERT_TRUE(interpreter->run("train"));
  EXPECT_THAT(diary.lines, ElementsAre("synchronise", "0 kernel work", "0 record 1", "0 wait 1",
                                       "0 kernel work", "0 record 2"));
}

TEST(Interpreter, RefusesAWaitThatIsBoundToAnotherRecord) {
  Program program = looping_program();
  auto& ops = program.plans[0].segments[0].ops;
  ops.push_back(op(3, "again", Record{.event = EventId(0)}));
  Diary diary;
  auto interpreter = Interpreter::create(program, diary, 0).value();
  const auto outcome = interpreter->run("train", 2);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message(),
            "op 0 (before): its event's latest record is op 3 at distance 1, to which the plan "
            "does not bind it");
}

TEST(Interpreter, RefusesAWaitThatNothingPrecedes) {
  Program program = looping_program();
  std::get<Wait>(program.plans[0].segments[0].ops[0].body).bindings = {{OpId(2), 0}};
  Diary diary;
  auto interpreter = Interpreter::create(program, diary, 0).value();
  const auto outcome = interpreter->run("train");
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message(),
            "op 0 (before): waits for a record that no op before it makes");
}

TEST(Interpreter, TheHostWorksBeforeACopyWhenTheLastOneHasEnded) {
  Program program = looping_program();
  auto& ops = program.plans[0].segments[0].ops;
  const Operand operand = test::tiny_operand("input", Access::read, BufferId(0), 4);
  ops[1] = op(1, "feed", Copy{.kind = CopyKind::h2d, .input = operand, .output = operand});
  ops.erase(ops.begin());
  program.buffers[0].holds = Contents{.kind = ContentKind::port, .port = Port::tokens};
  Diary diary;
  auto interpreter =
      Interpreter::create(program, diary, 0,
                          [&](const BoundOp& copy, std::int64_t step, std::optional<Nanos> ended) {
                            return diary.write("{} fill {} {}", step, copy.operands[0].role,
                                               ended.value_or(Nanos(0)).value);
                          })
          .value();
  ASSERT_TRUE(interpreter->run("train", 2));
  EXPECT_THAT(diary.lines,
              ElementsAre("synchronise", "0 fill input 0", "0 copy feed", "0 record 1",
                          "1 host feed 1", "1 fill input 101", "1 copy feed", "1 record 2"));
}

/// A copy of other memory of the host is issued at once, and needs no record after it.
TEST(Interpreter, TheHostWaitsForCopiesOfPortsAlone) {
  Program program = looping_program();
  auto& ops = program.plans[0].segments[0].ops;
  const Operand operand = test::tiny_operand("input", Access::read, BufferId(0), 4);
  ops = {op(1, "back", Copy{.kind = CopyKind::h2d, .input = operand, .output = operand})};
  Diary diary;
  auto interpreter =
      Interpreter::create(program, diary, 0, [&](const BoundOp&, std::int64_t, auto) {
        return diary.write("fill");
      }).value();
  ASSERT_TRUE(interpreter->run("train", 2));
  EXPECT_THAT(diary.lines, ElementsAre("synchronise", "0 copy back", "1 copy back"));
}

/// Names of ops and where their first operands lie in a buffer, bytes from its first instance.
class Places final : public test::IdleBackend {
 public:
  Result<void> issue(const BoundOp& op, std::int64_t /*step*/) override {
    lines.push_back(fmt::format("{} {}", op.op->name, op.operands[0].data - first));
    return {};
  }

  const std::byte* first = nullptr;
  std::vector<std::string> lines;
};

/// Three microbatches, each of which has its activation until its backward.
TEST(Interpreter, OpsUseTheInstancesOfTheirMicrobatch) {
  Program program = test::tiny_program();
  program.buffers[2].instances = 3;  // of 256 bytes
  Kernel kernel;
  kernel.kind = KernelKind::cast;
  kernel.operands = {test::tiny_operand("input", Access::read_write, BufferId(2), 128)};
  const auto named = [&](std::size_t id, const char* name, std::int64_t lag) {
    Op made = op(id, name, kernel);
    made.lag = lag;
    return made;
  };
  const auto segment = [](std::int64_t repeat, std::int64_t microbatches, std::vector<Op> ops) {
    Segment made;
    made.repeat = repeat;
    made.microbatches = microbatches;
    made.ops = std::move(ops);
    return made;
  };
  program.plans = {{.name = "train",
                    .segments = {segment(1, 1, {named(0, "forward", 0)}),
                                 segment(2, 1, {named(1, "forward", 0), named(2, "backward", 1)}),
                                 segment(1, 0, {named(3, "backward", 0)})}}};
  Places places;
  auto interpreter = Interpreter::create(program, places, 0).value();
  places.first = interpreter->buffer_bytes(BufferId(2)).data();
  ASSERT_TRUE(interpreter->run("train", 2));
  const std::vector<std::string> step{"forward 0",   "forward 256",  "backward 0",
                                      "forward 512", "backward 256", "backward 512"};
  std::vector<std::string> steps = step;
  steps.insert(steps.end(), step.begin(), step.end());  // counts restart
  EXPECT_EQ(places.lines, steps);
}

/// Three forwards, then three backwards: each takes the oldest microbatch that is left.
TEST(Interpreter, CallsOfPassesHaveTheirLags) {
  Program program = test::tiny_program();
  program.buffers[2].instances = 3;  // of 256 bytes
  Kernel kernel;
  kernel.kind = KernelKind::cast;
  kernel.operands = {test::tiny_operand("input", Access::read_write, BufferId(2), 128)};
  Segment forwards;
  forwards.repeat = 3;
  forwards.microbatches = 1;
  forwards.calls = {{.pass = PassId(0)}};
  Segment backwards;
  backwards.repeat = 3;
  backwards.calls = {{.pass = PassId(1), .lag = 2, .lag_step = -1}};
  program.plans = {
      {.name = "train",
       .segments = {forwards, backwards},
       .passes = {{.id = PassId(0), .name = "f", .ops = {op(0, "forward", kernel)}},
                  {.id = PassId(1), .name = "b", .ops = {op(1, "backward", kernel)}}}}};
  Places places;
  auto interpreter = Interpreter::create(program, places, 0).value();
  places.first = interpreter->buffer_bytes(BufferId(2)).data();
  ASSERT_TRUE(interpreter->run("train"));
  EXPECT_THAT(places.lines, ElementsAre("forward 0", "forward 256", "forward 512", "backward 0",
                                        "backward 256", "backward 512"));
}

/// An event of two instances in a segment of two microbatches: each wait is for the record of two
/// runs before, in the last step.
TEST(Interpreter, WaitsForTheRecordOfItsTurn) {
  Program program = looping_program();
  program.events[0].instances = 2;
  Segment& segment = program.plans[0].segments[0];
  segment.repeat = 2;
  segment.microbatches = 1;
  std::get<Wait>(segment.ops[0].body).bindings = {{OpId(2), 2}};
  Diary diary;
  auto interpreter = Interpreter::create(program, diary, 0).value();
  ASSERT_TRUE(interpreter->run("train", 2));
  EXPECT_THAT(diary.lines, ElementsAre("synchronise", "0 kernel work", "0 record 1",
                                       "0 kernel work", "0 record 1", "1 wait 1", "1 kernel work",
                                       "1 record 2", "1 wait 1", "1 kernel work", "1 record 2"));

  std::get<Wait>(segment.ops[0].body).bindings = {{OpId(2), 1}, {OpId(2), 3}};
  auto wrong = Interpreter::create(program, diary, 0).value();
  const auto outcome = wrong->run("train", 2);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message(),
            "op 0 (before): its event's latest record is op 2 at distance 2, to which the plan "
            "does not bind it");
}

TEST(PlanBinder, OperandsLieWhereTheRanksIndicesSay) {
  Program program = test::tiny_program();
  program.config.mesh = data_parallel_mesh(2, 3);
  Operand operand = test::tiny_operand("input", Access::read, BufferId(1), 6);
  operand.offset = 8;
  operand.shape = {2, 3};
  operand.rank_strides = {{.axis = Axis::dp_shard, .bytes = 4},
                          {.axis = Axis::dp_outer, .bytes = 32}};
  Kernel kernel;
  kernel.operands = {operand};
  program.plans = {{.name = "train",
                    .segments = {{.name = "only",
                                  .repeat = 1,
                                  .ops = {op(0, "work", kernel)},
                                  .live_in = {},
                                  .live_out = {}}}}};
  std::vector<std::byte> first(1024), second(1024);
  PlanBinder binder(program, {first.data(), second.data()}, 5);  // outer 1, shard 2
  const BoundPlan bound = binder.bind(program.plans[0]).value();
  const OperandView& view = bound.lists[0].ops[0].operands[0];
  // Buffer 1 begins at byte 256 of the first pool.
  EXPECT_EQ(view.data, first.data() + 256 + 8 + 2 * 4 + 1 * 32);
  EXPECT_THAT(view.strides, ElementsAre(3, 1));
  EXPECT_THAT(view.shape, ElementsAre(2, 3));
}

TEST(PlanBinder, KernelsHaveTheNumbersOfTheirRank) {
  Program program = test::tiny_program();
  program.config.mesh = data_parallel_mesh(2, 3);
  Kernel plain;
  plain.attributes = {{"rows", 4}};
  Kernel kernel = plain;
  kernel.attributes.emplace_back("vocab_begin", 6);
  kernel.attributes.back().per = {{.axis = Axis::dp_shard, .step = 8}};
  program.plans = {{.name = "train",
                    .segments = {{.name = "only",
                                  .repeat = 1,
                                  .ops = {op(0, "work", kernel), op(1, "more", plain)},
                                  .live_in = {},
                                  .live_out = {}}}}};
  std::vector<std::byte> first(1024), second(1024);
  PlanBinder binder(program, {first.data(), second.data()}, 5);  // outer 1, shard 2
  const BoundPlan bound = binder.bind(program.plans[0]).value();
  const std::vector<BoundOp>& ops = bound.lists[0].ops;
  EXPECT_EQ(ops[0].kernel->attribute("vocab_begin"), 6 + 2 * 8);
  EXPECT_EQ(ops[0].kernel->attribute("rows"), 4);
  EXPECT_EQ(ops[1].kernel, &std::get<Kernel>(program.plans[0].segments[0].ops[1].body));
}

TEST(PlanBinder, ChecksTheOperandsOfCollectives) {
  Program program = test::tiny_program();
  Collective gather;
  gather.count = 64;
  gather.input = test::tiny_operand("input", Access::read, BufferId(0), 64);
  gather.output = test::tiny_operand("output", Access::write, BufferId(1), 64);
  program.plans = {{.name = "train",
                    .segments = {{.name = "only",
                                  .repeat = 1,
                                  .ops = {op(7, "gather", gather)},
                                  .live_in = {},
                                  .live_out = {}}}}};
  std::vector<std::byte> pool(1024);
  const auto bound = PlanBinder(program, {pool.data(), pool.data()}, 0).bind(program.plans[0]);
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().message(),
            "plan \"train\", op 7 (gather): output holds 64 bf16, where all_gather of 2 members "
            "needs 128 contiguous bf16");
}

TEST(Interpreter, EveryBuiltPlanBindsAndItsWaitsAreBoundToWhatIsRecorded) {
  for (const std::int64_t microbatches : {1, 2, 4}) {
    PlanConfig config = test::small_config(4, 3);
    config.microbatches = microbatches;
    const Program program = build_program(config, {}).value();
    Diary diary;
    auto interpreter = Interpreter::create(program, diary, 3).value();
    for (const char* plan : {"train", "eval", "train"}) {
      const auto outcome = interpreter->run(plan, 3);
      EXPECT_TRUE(outcome) << outcome.error().message();
    }
  }
}

}  // namespace
}  // namespace mfsdp
