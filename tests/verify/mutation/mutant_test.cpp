// The mutants of a plan, and how each changes it.
#include "verify/mutation/mutant.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/pipeline.hpp"
#include "tests/support/plan_builder.hpp"
#include "tests/support/samples.hpp"
#include "verify/mutation/rebind.hpp"

namespace mfsdp {
namespace {

using test::PlanBuilder;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Mutant> all_mutants(const Program& program) {
  std::vector<Mutant> list;
  for_each_mutant(program, [&](const Mutant& mutant) { return list.push_back(mutant), true; });
  return list;
}

Program hybrid() {
  PlanConfig config = test::small_config(2, 1);
  config.mesh = data_parallel_mesh(2, 2);
  config.microbatches = 3;
  return *build_program(config, {});
}

/// gather: acquire w | fill | record; compute: wait | use | record; gather: wait | release w
Program handed_over() {
  PlanBuilder b;
  const BufferId w = b.buffer("w");
  b.acquire(b.gather, w);
  b.kernel(b.gather, "fill", {}, {w});
  b.record(b.gather, "filled");
  b.wait(b.compute, "filled");
  b.kernel(b.compute, "use", {w}, {});
  b.record(b.compute, "used");
  b.wait(b.gather, "used");
  b.release(b.gather, w);
  return b.finish();
}

std::vector<std::string> order_of(const Program& program) {
  std::vector<std::string> names;
  for (const Op& op : program.plans[0].segments[0].ops)
    names.push_back(std::string(to_string(op.kind())) + " " + op.name);
  return names;
}

std::optional<Program> mutated(const Program& program, MutantKind kind, std::uint32_t index,
                               std::uint32_t part = 0, std::int64_t by = 0) {
  return apply(program, {.kind = kind, .index = index, .part = part, .by = by});
}

TEST(Mutants, AreTheSameEachTime) {
  const Program program = hybrid();
  const auto once = all_mutants(program);
  EXPECT_EQ(once, all_mutants(program));
  std::set<std::string> names;
  for (const Mutant& mutant : once) names.insert(describe(program, mutant));
  EXPECT_EQ(names.size(), once.size());  // no two of one name
}

TEST(Mutants, EveryKindOccursAndChangesThePlan) {
  std::vector<Program> programs = test::pipeline().programs;
  programs.push_back(hybrid());
  std::set<MutantKind> applied;
  test::Sample sample;
  for (const Program& program : programs)
    for (const Mutant& mutant : all_mutants(program)) {
      if (applied.contains(mutant.kind) && !sample.takes_next()) continue;
      const auto altered = apply(program, mutant);
      if (!altered) continue;
      EXPECT_NE(*altered, program) << describe(program, mutant);
      applied.insert(mutant.kind);
    }
  EXPECT_EQ(applied.size(), Names<MutantKind>::values.size());
}

TEST(Mutants, StopWhenAsked) {
  int seen = 0;
  for_each_mutant(hybrid(), [&](const Mutant&) { return ++seen < 5; });
  EXPECT_EQ(seen, 5);
}

TEST(Mutants, OfNothingAreNothing) {
  const Program program = handed_over();
  EXPECT_FALSE(mutated(program, MutantKind::drop_wait, 1));  // op 1 is a kernel
  EXPECT_FALSE(mutated(program, MutantKind::drop_kernel, 99));
  EXPECT_FALSE(mutated(program, MutantKind::shift_buffer, 99));
  EXPECT_FALSE(mutated(program, MutantKind::change_attribute, 1, 7));
  EXPECT_THAT(describe(program, {.kind = MutantKind::drop_kernel, .index = 99}),
              HasSubstr("no such op"));
}

TEST(Mutants, DropAndDouble) {
  const Program program = handed_over();
  EXPECT_EQ(order_of(*mutated(program, MutantKind::drop_wait, 3)).size(), 7);
  const Program twice = *mutated(program, MutantKind::double_kernel, 1);
  EXPECT_THAT(order_of(twice),
              ElementsAre("acquire w", "kernel fill", "kernel fill", "record filled", "wait filled",
                          "kernel use", "record used", "wait used", "release w"));
  EXPECT_EQ(twice.plans[0].segments[0].ops[2].id, OpId(8));  // the first that is free
}

TEST(Mutants, SwapWithTheNextOpOfTheHostOrOfTheStream) {
  const Program program = handed_over();
  // record filled (gather) | wait filled (compute): neighbours of two streams
  EXPECT_THAT(order_of(*mutated(program, MutantKind::swap_neighbours, 2)),
              ElementsAre("acquire w", "kernel fill", "wait filled", "record filled", "kernel use",
                          "record used", "wait used", "release w"));
  EXPECT_FALSE(mutated(program, MutantKind::swap_on_stream, 7));  // the last of its stream
  // record filled | wait used, both gather's
  EXPECT_THAT(order_of(*mutated(program, MutantKind::swap_on_stream, 2)),
              ElementsAre("acquire w", "kernel fill", "wait used", "wait filled", "kernel use",
                          "record used", "record filled", "release w"));
}

TEST(Mutants, LifetimesShrinkToTheOpsInside) {
  const Program program = handed_over();
  EXPECT_THAT(order_of(*mutated(program, MutantKind::acquire_late, 0)),
              ElementsAre("kernel fill", "acquire w", "record filled", "wait filled", "kernel use",
                          "record used", "wait used", "release w"));
  EXPECT_THAT(order_of(*mutated(program, MutantKind::release_early, 7)),
              ElementsAre("acquire w", "kernel fill", "record filled", "wait filled", "release w",
                          "kernel use", "record used", "wait used"));
}

TEST(Mutants, WaitsAreBoundToWhatTheyGet) {
  // Before its record a wait gets that of the step before.
  const Program program = *mutated(handed_over(), MutantKind::swap_neighbours, 2);
  const auto& wait = std::get<Wait>(program.plans[0].segments[0].ops[2].body);
  EXPECT_THAT(wait.bindings, ElementsAre(Binding{.record = OpId(2), .distance = 1}));
}

TEST(Rebind, FindsWhatThePlannerStates) {
  for (const std::int64_t microbatches : {1, 2, 3, 5}) {
    PlanConfig config = test::small_config(2, 2);
    config.microbatches = microbatches;
    const Program program = *build_program(config, {});
    Program again = program;
    for (Plan& plan : again.plans) rebind(plan, again.events);
    EXPECT_EQ(again, program);
    for (Plan& plan : again.plans)
      for (Segment& segment : plan.segments)
        for (Op& op : segment.ops)
          if (auto* wait = std::get_if<Wait>(&op.body)) wait->bindings.clear();
    for (Plan& plan : again.plans) rebind(plan, again.events);
    for (Plan& plan : again.plans) resolve_bindings(plan);  // the same in the planner's order
    EXPECT_EQ(again, program);
  }
}

}  // namespace
}  // namespace mfsdp
