#include "core/plan/job.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "core/plan/check.hpp"
#include "core/plan/plan_json.hpp"
#include "core/plan/rotation.hpp"
#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

/// Two stages of a pipeline, each of two ranks that run the tiny program.
Job two_stages() {
  Program program = test::tiny_program();
  program.config.mesh.resize(Axis::pp, 2);
  Job job;
  for (const std::int64_t stage : {0, 1}) {
    program.classes = {{.role = stage == 0 ? "front" : "back",
                        .ranks = 2,
                        .at = {{.axis = Axis::pp, .index = stage}}}};
    job.programs.push_back(program);
  }
  return job;
}

std::string complaint(const std::function<void(Job&)>& edit) {
  Job job = two_stages();
  edit(job);
  const auto checked = check_structure(job);
  return checked ? "" : checked.error().message();
}

TEST(Job, RanksAreOfTheClassThatLiesThere) {
  EXPECT_EQ(complaint([](Job&) {}), "");
  EXPECT_EQ(class_of_ranks(two_stages()), (std::vector<std::uint32_t>{0, 0, 1, 1}));
}

TEST(Job, SurvivesItsJson) {
  const Job job = two_stages();
  const auto read = job_from_json(to_canonical_json(job), "job.json");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(plan_hash(*read), plan_hash(job));
  EXPECT_EQ(read->programs[1].plans, job.programs[1].plans);
  EXPECT_EQ(read->programs[1].classes, job.programs[1].classes);
  EXPECT_EQ(to_canonical_json(*read), to_canonical_json(job));
}

TEST(Job, OfOneClassIsTheProgramItself) {
  const Program program = test::tiny_program();
  const Job job{.programs = {program}};
  EXPECT_EQ(to_canonical_json(job), to_canonical_json(program));
  EXPECT_EQ(plan_hash(job), plan_hash(program));
}

TEST(Job, HashKnowsEveryClass) {
  Job other = two_stages();
  other.programs[1].buffers[0].name = "another";
  EXPECT_NE(plan_hash(other), plan_hash(two_stages()));
}

TEST(Job, RefusesRanksOfTwoClassesOrNone) {
  EXPECT_EQ(complaint([](Job& job) { job.programs[1].classes[0].at[0].index = 0; }),
            "classes[1].at: shares ranks with class 0");
  EXPECT_EQ(complaint([](Job& job) { job.programs[1].classes[0].at[0].index = 2; }),
            "classes[1].at[0].index: expected less than the 2 ranks on pp, got 2");
  EXPECT_EQ(complaint([](Job& job) { job.programs[1].classes[0].ranks = 3; }),
            "classes[1].ranks: expected 2 by its place in the mesh, got 3");
  EXPECT_EQ(complaint([](Job& job) {
              for (Program& program : job.programs) program.config.mesh.resize(Axis::pp, 3);
            }),
            "classes: hold 4 ranks where config.mesh has 6");
}

TEST(Job, RefusesClassesOfOtherPlans) {
  EXPECT_EQ(complaint([](Job& job) {
              job.programs[1].plans.push_back(job.programs[1].plans[0]);
              job.programs[1].plans[1].name = "eval";
              for (Segment& s : job.programs[1].plans[1].segments) {
                std::erase_if(s.ops, [](const Op& op) { return op.kind() == OpKind::wait; });
                for (Op& op : s.ops) op.id = OpId(op.id.value + 100);
              }
            }).substr(0, 16),
            "classes[1].plans");
}

TEST(Job, OtherToolsTakeOneClassAndOneMicrobatch) {
  EXPECT_TRUE(only_program({.programs = {test::tiny_program()}}));
  const auto several = only_program(two_stages());
  ASSERT_FALSE(several);
  EXPECT_EQ(several.error().message(),
            "classes: the plan has 2 classes of ranks; a plan of one is needed here");
  Program turning = test::tiny_program();
  turning.events[0].instances = 2;
  EXPECT_TRUE(is_pipelined(turning));
  const auto pipelined = only_program({.programs = {turning}});
  ASSERT_FALSE(pipelined);
  EXPECT_EQ(pipelined.error().message(),
            "plans: the plan has several microbatches in flight, or sends and receives; a plan "
            "without these is needed here");
  EXPECT_FALSE(program_from_json(to_canonical_json(two_stages()), "job.json"));
}

TEST(Job, OfTwoListsOfPlansNoneIsGuessed) {
  std::string text = to_canonical_json(two_stages());
  const std::string empty = R"("plans":[],"pools":[],"schema")";
  const auto at = text.find(empty);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, empty.size(), R"("plans":[{"name":"train","segments":[]}],"pools":[],"schema")");
  const auto read = unchecked_job_from_json(text, "job.json");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message(),
            "job.json: classes: expected no pools, buffers and plans at the top besides those of "
            "classes");
}

TEST(Rotation, InstancesTakeTurnsByMicrobatch) {
  // Microbatches begun 1, 2, 3, 4; of two instances.
  EXPECT_EQ(instance_of(1, 0, 2), 0);
  EXPECT_EQ(instance_of(2, 0, 2), 1);
  EXPECT_EQ(instance_of(3, 0, 2), 0);
  EXPECT_EQ(instance_of(3, 1, 2), 1);
  EXPECT_EQ(instance_of(4, 2, 3), 1);
  EXPECT_EQ(instance_of(0, 0, 3), 2);  // before the first one
  EXPECT_EQ(instance_of(9, 5, 1), 0);
}

TEST(Rotation, InstancesLieOneBehindTheOther) {
  Program program = test::tiny_program();
  Buffer& buffer = program.buffers[0];
  buffer.persistent = false;
  buffer.size = Bytes(300);
  EXPECT_EQ(instance_pitch(buffer, program.pools[0]), Bytes(512));
  buffer.instances = 3;  // 2 * 512 + 300 bytes
  const auto checked = check_structure(program);
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message().find("of pool 'memory', which has 1024 bytes"),
            std::string::npos)
      << checked.error().message();
}

}  // namespace
}  // namespace mfsdp
