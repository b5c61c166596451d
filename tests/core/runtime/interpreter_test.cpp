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
  const OperandView& view = bound.segments[0].ops[0].operands[0];
  // Buffer 1 begins at byte 256 of the first pool.
  EXPECT_EQ(view.data, first.data() + 256 + 8 + 2 * 4 + 1 * 32);
  EXPECT_THAT(view.strides, ElementsAre(3, 1));
  EXPECT_THAT(view.shape, ElementsAre(2, 3));
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
