#include "core/runtime/memory_meter.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/plan/lifetimes.hpp"
#include "core/runtime/interpreter.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/idle_backend.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

using Itinerary = std::vector<std::pair<std::string_view, std::int64_t>>;

MeasuredMemory measure(const Program& program, const Itinerary& itinerary) {
  test::IdleBackend idle;
  MemoryMeter meter(program, PlanRole::train, idle);
  auto interpreter = Interpreter::create(program, meter, 0).value();
  for (const auto& [plan, steps] : itinerary) EXPECT_TRUE(interpreter->run(plan, steps));
  return meter.measured();
}

CategoryBytes predicted(const Program& program) {
  const Plan& plan = *program.find_plan(PlanRole::train);
  return peak_memory(program, buffer_lifetimes(program, plan).value());
}

TEST(MemoryMeter, CountsWhatIsAllocatedAndWhatIsLive) {
  Program program = test::tiny_program();
  program.pools[1].height = Bytes(512);
  const MeasuredMemory measured = measure(program, {{"train", 2}});
  EXPECT_EQ(measured.pools, (std::vector<Bytes>{Bytes(1024), Bytes(512)}));
  EXPECT_EQ(measured.categories, predicted(program));
}

TEST(MemoryMeter, ABufferWhoseReleaseIsNotKnownIsStillLive) {
  // Without its wait the gathering stream's next acquire does not know that its weights were used.
  Program program = test::tiny_program();
  auto& ops = program.plans[0].segments[0].ops;
  Op second = ops[0];
  second.id = OpId(50);
  program.buffers.push_back(program.buffers[1]);
  program.buffers.back().id = BufferId(3);
  second.body = Acquire{.buffer = BufferId(3)};
  Op release = ops[9];
  release.id = OpId(51);
  release.stream = StreamId(0);  // compute gives back what all_gather took
  ops.erase(ops.begin() + 8, ops.end());
  ops.push_back(release);
  ops.push_back(second);
  const auto at = static_cast<std::size_t>(Category::unsharded_weight);
  EXPECT_EQ(measure(program, {{"train", 1}}).categories.at(at), Bytes(512));
}

TEST(MemoryMeter, EvaluationIsNotPartOfTheStep) {
  const Program program = build_program(test::small_config(2), {}).value();
  EXPECT_EQ(measure(program, {{"train", 2}, {"eval", 3}, {"train", 2}}).categories,
            predicted(program));
}

RC_GTEST_PROP(MemoryMeter, MeasuresWhatThePlanPredicts, ()) {
  const PlanConfig config = *test::any_config();
  RC_PRE(validate(config).has_value());
  const Program program = build_program(config, {}).value();
  const MeasuredMemory measured = measure(program, {{"train", 3}});
  RC_ASSERT(measured.categories == predicted(program));
  RC_ASSERT(measured.pools.size() == program.pools.size());
  for (std::size_t i = 0; i < measured.pools.size(); ++i)
    RC_ASSERT(measured.pools[i] == program.pools[i].height);
}

}  // namespace
}  // namespace mfsdp
